"""The engine takes as long as the simulator says where times are known: asleep."""

import pytest
from sleeping_stages import NUM_STEPS, sleep_in_order

from planner.schedule.named import SCHEDULES, schedule_actions
from planner.simulate import StageTimes, simulate

NUM_DEVICES, NUM_MICROBATCHES = 4, 8
MS = 1e-3


def times_of(stage):
    """No two neighbours alike; nobody asks for the gradient of the rows.

    An action costs the engine about a millisecond besides, which is told nowhere.
    """
    input_grad_s = (45 + 10 * (stage % 2)) * MS if stage else 0.0
    weight_grad_s = (50 + 5 * (stage % 3)) * MS
    return StageTimes(
        forward_s=(45 + 10 * (stage % 3)) * MS,
        backward_s=input_grad_s + weight_grad_s,
        input_grad_s=input_grad_s,
        weight_grad_s=weight_grad_s,
    )


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["1f1b", "interleaved-1f1b", "zb-v"])
def test_four_sleeping_devices_take_as_long_as_was_simulated(processes, name):
    num_stages = NUM_DEVICES * SCHEDULES[name].min_stages_per_device
    times = [times_of(stage) for stage in range(num_stages)]
    actions = schedule_actions(name, NUM_DEVICES, NUM_MICROBATCHES)
    expected_s = simulate(actions, times).makespan_s
    task = name, NUM_DEVICES, NUM_MICROBATCHES, times
    devices = processes.call(sleep_in_order, task, NUM_DEVICES)
    makespans_s = []
    for step in range(NUM_STEPS):
        spans = [span for device in devices for span in device[step]]
        begins_s, ends_s = zip(*spans, strict=True)
        makespans_s.append(max(ends_s) - min(begins_s))
    # A busy machine only adds; sleeping is never shorter than it was told.
    assert expected_s * 0.999 < min(makespans_s) < expected_s * 1.03
