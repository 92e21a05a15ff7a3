"""What stands between a plan and PyTorch's schedule runtime."""

from types import SimpleNamespace

import pytest
from engine_parts import ORDER, run_parts
from torch.distributed.pipelining import schedules

from planner.plan import SchedulePlan
from planner.runtime import engine


def test_actions_are_handed_to_torch_row_by_row():
    plan = SchedulePlan(
        name="zb-h1",
        num_microbatches=2,
        microbatch_size=1,
        actions=(("0F0", "0F1", "0B0", "0B1"), ("1F0", "1I0", "1W0", "1F1", "1B1")),
    )
    found = engine._torch_actions(plan)
    assert {device: [str(a) for a in row] for device, row in found.items()} == {
        0: ["0F0", "0F1", "0B0", "0B1"],
        1: ["1F0", "1I0", "1W0", "1F1", "1B1"],
    }
    assert found[0][2] == schedules._Action(0, schedules.FULL_BACKWARD, 0)


def test_the_losses_of_overtaking_microbatches_are_told_apart():
    schedule = object.__new__(engine._Schedule)
    schedule.losses = {1: "second", 0: "first"}
    last = SimpleNamespace(is_last=True)
    assert schedule._maybe_get_loss(last, 0) == "first"
    assert schedule._maybe_get_loss(SimpleNamespace(is_last=False), 5) is None


@pytest.fixture(scope="module")
def parts(processes):
    (found,) = processes.call(run_parts, None, 1)
    return found


def test_three_stages_of_one_device_train_as_one_although_outputs_are_views(parts):
    assert parts["losses"] == pytest.approx([parts["plain loss"]] * 2)
    for found, plain in zip(parts["gradients"], parts["plain gradients"], strict=True):
        for row, plain_row in zip(found, plain, strict=True):
            assert row == pytest.approx(plain_row, rel=1e-5)


def test_what_stages_of_one_device_handed_over_is_freed(parts):
    assert parts["left"] == []


def test_every_action_is_noted_in_the_order_it_ran(parts):
    assert parts["actions"] == ORDER.split()
