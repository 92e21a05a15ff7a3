"""How closely the engine follows the simulator where times are known: asleep.

    python benchmarks/sleeping_stages.py

Four processes run stages that only sleep, as in `tests/runtime/sleeping_stages.py`, so
that neither the number of cores nor the arithmetic matters. For every schedule: the
simulated step, the shortest measured one, and what the engine took besides, in all and
for one action.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "runtime"))

from process_group import Processes
from sleeping_stages import makespans_s, sleep_in_order, unequal_times

from planner.schedule.named import SCHEDULES, schedule_actions
from planner.simulate import simulate

NUM_DEVICES, NUM_MICROBATCHES = 4, 8


def main() -> None:
    """Print one line a schedule."""
    processes = Processes(NUM_DEVICES)
    try:
        for name in SCHEDULES:
            print(line(processes, name), flush=True)
    finally:
        processes.close()


def line(processes: Processes, name: str) -> str:
    """One schedule."""
    times = unequal_times(NUM_DEVICES * SCHEDULES[name].min_stages_per_device)
    actions = schedule_actions(name, NUM_DEVICES, NUM_MICROBATCHES)
    simulated_s = simulate(actions, times).makespan_s
    task = name, NUM_DEVICES, NUM_MICROBATCHES, times
    measured_s = min(makespans_s(processes.call(sleep_in_order, task, NUM_DEVICES)))
    besides_s = measured_s - simulated_s
    num_actions = max(map(len, actions))
    return (
        f"{name:17} simulated {simulated_s:.3f} s, measured {measured_s:.3f} s: "
        f"{measured_s / simulated_s - 1:+.1%}, {besides_s / num_actions * 1e3:.2f} ms "
        f"for each of {num_actions} actions"
    )


if __name__ == "__main__":
    main()
