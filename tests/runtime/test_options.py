from pathlib import Path

import pytest

from planner.errors import WishError
from planner.runtime.options import RunOptions


@pytest.mark.parametrize(
    ("options", "num_steps"),
    [({}, 10), ({"steps": 3}, 3), ({"epochs": 2}, 2 * 7)],
)
def test_steps_come_from_steps_or_epochs_or_are_ten(options, num_steps):
    assert RunOptions(output_dir=Path("x"), **options).num_steps(7) == num_steps


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 3, "epochs": 1}, "--steps 3 and --epochs 1"),
        ({"steps": 0}, "--steps is 0"),
        ({"epochs": -1}, "--epochs is -1"),
        ({"lr": float("nan")}, "--lr is nan"),
        ({"lr": float("inf")}, "--lr is inf"),
        ({"max_grad_norm": -1.0}, "--max-grad-norm is -1"),
        ({"warmup_steps": -2}, "--warmup-steps is -2"),
        ({"seed": -1}, "--seed is -1"),
    ],
)
def test_impossible_options_are_refused_by_name(options, message):
    with pytest.raises(WishError, match=message):
        RunOptions(output_dir=Path("x"), **options)


def test_the_record_of_the_options_is_plain_json_data():
    record = RunOptions(output_dir=Path("runs/a"), lr=0.5).as_record()
    assert record["output_dir"] == "runs/a"
    assert record["lr"] == 0.5
    assert record["steps"] is None
