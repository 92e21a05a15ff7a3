"""Plans for the runtime's tests, cut by hand."""

from planner.model_profile import ModelInfo
from planner.plan import (
    OptimizerPlan,
    Plan,
    PlanPrediction,
    ProfileRef,
    SchedulePlan,
    SolverReport,
    StagePlan,
)
from planner.schedule.actions import format_actions, parse_actions
from planner.schedule.named import schedule_actions


def make_plan(
    model_id,
    layer_names,
    counts,
    *,
    schedule="1f1b",
    num_devices=None,
    actions=None,
    num_microbatches=4,
    microbatch_size=1,
    seq_len=16,
    recompute=(),
    optimizer="adamw",
    attention="sdpa",
    num_copies=1,
):
    """A plan that puts `counts[s]` layers on stage s; nothing is predicted.

    The order is that of a named schedule, with one stage a device if not told
    otherwise, or `actions`, given per device such as `"0F0 0B0"`. Microbatches are
    those of each copy.
    """
    assert sum(counts) == len(layer_names)
    if actions is None:
        devices = num_devices or len(counts)
        stages_per_device = len(counts) // devices
        made = schedule_actions(schedule, devices, num_microbatches, stages_per_device)
        rows = format_actions(made)
    else:
        rows = tuple(tuple(row.split()) for row in actions)
    home = {a.stage: d for d, row in enumerate(parse_actions(rows)) for a in row}
    return Plan(
        model=ModelInfo(id=str(model_id)),
        profile=ProfileRef(path="", sha256=""),
        device_type="cpu",
        dtype="float32",
        attention=attention,
        seq_len=seq_len,
        global_batch_size=num_copies * num_microbatches * microbatch_size,
        copies=tuple(
            tuple(f"cpu:{copy * len(rows) + device}" for device in range(len(rows)))
            for copy in range(1, num_copies)
        ),
        stages=tuple(_stages(layer_names, counts, home, set(recompute))),
        schedule=SchedulePlan(
            name=schedule,
            num_microbatches=num_microbatches,
            microbatch_size=microbatch_size,
            actions=rows,
        ),
        optimizer=OptimizerPlan(name=optimizer, bytes_per_parameter=16),
        predicted=PlanPrediction(step_s=0.0, makespan_s=0.0),
        solver=SolverReport(
            status="feasible", bound_s=0.0, gap=0.0, candidates=0, solve_s=0.0
        ),
    )


def _stages(layer_names, counts, home, recompute):
    first = 0
    for index, count in enumerate(counts):
        names = tuple(layer_names[first : first + count])
        yield StagePlan(
            index=index,
            device=f"cpu:{home[index]}",
            first_layer=first,
            last_layer=first + count - 1,
            layers=names,
            recompute=tuple(name for name in names if name in recompute),
        )
        first += count
