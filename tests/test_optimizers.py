"""Bytes per parameter."""

import pytest

from planner.errors import WishError
from planner.optimizers import (
    OPTIMIZERS,
    automatic_optimizers,
    optimizer_spec,
    optimizers_for,
)


@pytest.mark.parametrize(
    ("name", "dtype", "weight", "gradient", "state"),
    [
        ("adamw", "float32", 4, 4, 8),
        ("adamw", "bfloat16", 2, 2, 12),
        ("sgd", "float32", 4, 4, 0),
        ("sgd", "bfloat16", 2, 2, 4),
        ("adamw-bf16", "bfloat16", 2, 2, 4),
    ],
)
def test_bytes_per_parameter(name, dtype, weight, gradient, state):
    spec = optimizer_spec(name, dtype)
    assert (spec.weight_bytes, spec.gradient_bytes, spec.state_bytes) == (
        weight,
        gradient,
        state,
    )
    assert spec.bytes_per_parameter == weight + gradient + state
    rounded = 16 if name == "adamw-bf16" else 4
    assert spec.step_bytes == (rounded if dtype == "bfloat16" else 0)


def test_auto_is_adamw():
    assert optimizer_spec("auto", "bfloat16") == optimizer_spec("adamw", "bfloat16")


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(WishError, match=f"'lion'; there are {', '.join(OPTIMIZERS)}"):
        optimizer_spec("lion", "float32")


def test_weights_are_rounded_at_random_in_bfloat16_only():
    with pytest.raises(
        WishError, match=r"trains bfloat16 weights, and these are float"
    ):
        optimizer_spec("adamw-bf16", "float32")
    assert optimizers_for("float32") == ("adamw", "sgd")
    assert optimizers_for("bfloat16") == OPTIMIZERS


def test_auto_tries_first_what_changes_training_least():
    assert automatic_optimizers("float32") == ("adamw",)
    assert automatic_optimizers("bfloat16") == ("adamw", "adamw-bf16")
