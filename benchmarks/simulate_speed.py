"""How long one simulation takes: python benchmarks/simulate_speed.py.

126 layers on 16 devices, 64 microbatches, the innermost loop of a search. Prints
one line a schedule, medians of 20 in milliseconds:

    cut      from the times of layers to those of stages
    wire     who waits for whom, once for an order
    clock    when every action runs, for one cut
    path     the critical path, for one cut
    states   the fullest states of all devices, once for an order
    peaks    the peak of all devices, for one cut
    in all   cut, wire, clock and path: a first simulation of an order
"""

import statistics
import time
from collections.abc import Callable
from itertools import pairwise

from planner.memory import StageBytes, peak_states
from planner.model_profile import LayerProfile
from planner.schedule.named import schedule_actions
from planner.simulate import StageTimes, simulate, simulate_wired, wire

NUM_LAYERS, NUM_DEVICES, NUM_MICROBATCHES = 126, 16, 64
LAYERS = tuple(
    LayerProfile(
        name=f"block.{index}",
        forward_s=1e-3 * (1 + index % 7 / 10),
        backward_s=2e-3 * (1 + index % 7 / 10),
        input_grad_s=1e-3,
        weight_grad_s=1e-3,
    )
    for index in range(NUM_LAYERS)
)


def median_ms(work: Callable[[], object]) -> float:
    """Time something.

    Args:
        work: What to do.

    Returns:
        Median of 20 [ms].
    """
    taken_s = []
    for _ in range(20):
        begin_s = time.perf_counter()
        work()
        taken_s.append(time.perf_counter() - begin_s)
    return 1e3 * statistics.median(taken_s)


def stage_times(num_stages: int) -> list[StageTimes]:
    """Cut the layers evenly.

    Args:
        num_stages: Of the whole pipeline.

    Returns:
        One entry a stage.
    """
    ends = [round(NUM_LAYERS * stage / num_stages) for stage in range(num_stages + 1)]
    return [
        StageTimes(
            forward_s=sum(x.forward_s for x in LAYERS[first:end]),
            backward_s=sum(x.backward_s for x in LAYERS[first:end]),
            input_grad_s=sum(x.input_grad_s for x in LAYERS[first:end]),
            weight_grad_s=sum(x.weight_grad_s for x in LAYERS[first:end]),
            send_forward_s=1e-4,
            send_backward_s=1e-4,
        )
        for first, end in pairwise(ends)
    ]


def main() -> None:
    """Time every part for schedules with F and B, and with F, I and W."""
    for name in ("1f1b", "zb-h1", "interleaved-1f1b", "zb-v"):
        actions = schedule_actions(name, NUM_DEVICES, NUM_MICROBATCHES)
        num_stages = len({action.stage for row in actions for action in row})
        times = stage_times(num_stages)
        wiring = wire(actions)
        timeline = simulate_wired(wiring, times)
        states = [peak_states(row) for row in actions]
        own = StageBytes(kept_bytes=100, held_bytes=60, forward_peak_bytes=130)
        sizes = [dict.fromkeys(found.stages, own) for found in states]
        pairs = list(zip(states, sizes, strict=True))
        parts = {
            "cut": lambda n=num_stages: stage_times(n),
            "wire": lambda a=actions: wire(a),
            "clock": lambda w=wiring, t=times: simulate_wired(w, t),
            "path": lambda t=timeline: t.critical_path,
            "states": lambda a=actions: [peak_states(row) for row in a],
            "peaks": lambda p=pairs: [found.peak_bytes(x) for found, x in p],
            "in all": lambda a=actions, n=num_stages: (
                simulate(a, stage_times(n)).critical_path
            ),
        }
        taken = "  ".join(
            f"{what} {median_ms(work):.2f}" for what, work in parts.items()
        )
        count = sum(map(len, actions))
        print(f"{name:16s} {count:5d} actions  {taken} ms")


if __name__ == "__main__":
    main()
