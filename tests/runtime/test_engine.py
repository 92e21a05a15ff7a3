"""What stands between a plan and PyTorch's schedule runtime."""

import pytest
import torch
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


@pytest.mark.parametrize("version", ["2.13.0", "2.13.1+cu130"])
def test_a_tested_torch_is_accepted(monkeypatch, version):
    monkeypatch.setattr(torch, "__version__", version)
    engine._check_torch_version()


@pytest.mark.parametrize("version", ["2.12.1", "2.130.0", "3.13.0"])
def test_another_torch_is_refused_with_both_versions(monkeypatch, version):
    monkeypatch.setattr(torch, "__version__", version)
    with pytest.raises(RuntimeError, match=rf"torch {version} .* with 2\.13 only"):
        engine._check_torch_version()


def test_the_tested_torch_is_the_one_that_is_installed():
    engine._check_torch_version()
