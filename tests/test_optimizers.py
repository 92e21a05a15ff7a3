"""Bytes per parameter."""

import pytest

from planner.errors import WishError
from planner.optimizers import OPTIMIZERS, optimizer_spec


@pytest.mark.parametrize(
    ("name", "dtype", "weight", "gradient", "state"),
    [
        ("adamw", "float32", 4, 4, 8),
        ("adamw", "bfloat16", 2, 2, 12),
        ("sgd", "float32", 4, 4, 0),
        ("sgd", "bfloat16", 2, 2, 4),
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
    assert spec.step_bytes == (4 if dtype == "bfloat16" else 0)


def test_auto_is_adamw():
    assert optimizer_spec("auto", "bfloat16") == optimizer_spec("adamw", "bfloat16")


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(WishError, match=f"'lion'; there are {', '.join(OPTIMIZERS)}"):
        optimizer_spec("lion", "float32")
