"""Looped BFS: breadth first, all microbatches through one stage after the other.

    0F0 0F1 2F0 2F1 ..  ..  ..  2B1 2B1 2B0 2B0 0B1 0B1 0B0 0B0
    ..  1F0 1F1 3F0 3F1 3B1 3B1 3B0 3B0 1B1 1B1 1B0 1B0 ..  ..

Every device holds all microbatches at once, as under GPipe, and its fill is that
of the interleaved schedule. The last microbatch is the first to go back, for its
activations are the youngest. Source: Lamy-Poirier, "Breadth-First Pipeline
Parallelism".
"""

from planner.schedule.actions import Action, Actions
from planner.schedule.placement import stages_of_device


def looped_bfs(
    num_devices: int, num_microbatches: int, stages_per_device: int
) -> Actions:
    """Order of actions under looped BFS, in loop placement.

    Args:
        num_devices: At least 1.
        num_microbatches: Of one step, at least 1.
        stages_per_device: At least 2.

    Returns:
        The actions of every device.
    """
    rows = []
    for device in range(num_devices):
        stages = stages_of_device("loop", num_devices, stages_per_device, device)
        forwards = [(s, m) for s in stages for m in range(num_microbatches)]
        rows.append(
            tuple(Action(s, "F", m) for s, m in forwards)
            + tuple(Action(s, "B", m) for s, m in reversed(forwards))
        )
    return tuple(rows)
