"""Schedules drawn as text, stages of equal times on free links."""

from planner.schedule.named import schedule_actions
from planner.simulate import StageTimes, simulate, timeline_rows


def simulated(actions, num_stages, *, forward_s=1.0, input_s=1.0, weight_s=1.0):
    """The timeline of stages that all take the same times; B is I and W."""
    times = StageTimes(
        forward_s=forward_s,
        backward_s=input_s + weight_s,
        input_grad_s=input_s,
        weight_grad_s=weight_s,
    )
    return simulate(actions, [times] * num_stages)


def drawn(name, num_devices, num_microbatches, stages_per_device=None, columns=20):
    """One column a unit of time; a blank line where the picture is folded."""
    actions = schedule_actions(name, num_devices, num_microbatches, stages_per_device)
    num_stages = len({action.stage for row in actions for action in row})
    rows = timeline_rows(simulated(actions, num_stages), cell_s=1.0)
    width = columns * (1 + max(len(label) for row in rows for label in row.split()))
    blocks = [
        "\n".join(row[begin : begin + width].rstrip() for row in rows)
        for begin in range(0, max(map(len, rows)), width)
    ]
    return "\n\n".join(blocks)
