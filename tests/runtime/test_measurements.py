"""What the actions of a stage took, by kind."""

import pytest
import torch

from planner.plan import StagePlan
from planner.run_record import MeasuredSpan
from planner.runtime.measurements import DeviceMeasurements, times_of_stage


class Watch:
    """Actions that took so many seconds, one after another."""

    def __init__(self, *durations):
        self.durations = durations

    def spans(self):
        end_s = 0.0
        found = []
        for action, duration_s in self.durations:
            end_s += duration_s
            start_s = end_s - duration_s
            found.append(MeasuredSpan(action=action, start_s=start_s, end_s=end_s))
        return tuple(found)


def stage(index):
    return StagePlan(
        index=index, device="cpu:0", first_layer=index, last_layer=index, layers=("x",)
    )


def test_medians_are_by_kind_and_a_full_backward_counts_where_it_ran():
    watch = Watch(
        ("0F0", 1), ("0F1", 2), ("0F2", 9), ("0B0", 4), ("0I1", 2), ("0W1", 1)
    )
    found = times_of_stage(watch.spans())
    assert (found.forward_s, found.backward_s) == (2.0, 4.0)
    assert (found.input_grad_s, found.weight_grad_s) == (2.0, 1.0)
    assert found.busy_s == pytest.approx(19.0)


def test_the_backward_is_the_sum_of_its_halves_where_it_is_split():
    found = times_of_stage(Watch(("0F0", 1), ("0I0", 2), ("0W0", 3)).spans())
    assert found.backward_s == 5.0


def test_stages_of_a_device_have_their_own_times_and_its_memory():
    measurements = DeviceMeasurements(torch.device("cpu"), [stage(0), stage(3)])
    kept = torch.ones(1000)
    with measurements.watch_peak(True, []):
        kept = kept + torch.ones(1000)
        watch = Watch(("0F0", 1), ("3F0", 2), ("3B0", 4), ("0B0", 3))
        measurements.note_step(0.5, watch)
    measurements.note_step(0.25, watch)
    device, stages = measurements.summary()
    assert (device.device, device.stages) == ("cpu:0", (0, 3))
    assert device.busy_s == pytest.approx(10.0)
    assert [s.busy_s for s in stages] == pytest.approx([4.0, 6.0])
    assert [[x.action for x in s.spans] for s in stages] == [
        ["0F0", "0B0"],
        ["3F0", "3B0"],
    ]
    assert device.peak_bytes >= kept.nbytes
    assert {s.peak_bytes for s in stages} == {device.peak_bytes}
    assert {s.optimizer_s for s in stages} == {device.optimizer_s} == {0.25}
