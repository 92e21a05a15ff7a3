"""What stands between a plan and PyTorch's schedule runtime."""

from types import SimpleNamespace

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
