"""Without memory for a size, the smaller ones are measured."""

import pytest
import torch

from planner.errors import ModelError
from planner.measure.out_of_memory import (
    OutOfMemoryError,
    is_out_of_memory,
    visit_sizes,
)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), True),
        (MemoryError(), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("can't allocate memory"), False),
    ],
)
def test_an_error_about_memory_is_known_by_its_class_or_words(error, expected):
    assert is_out_of_memory(error) == expected


def test_torch_itself_says_it_in_these_words():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**62, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)


def test_an_error_raised_from_one_about_memory_is_one():
    error = RuntimeError("Failed to run stage backward input")
    error.__cause__ = torch.OutOfMemoryError()
    assert is_out_of_memory(error)


def visited(sizes, largest):
    """What is visited, found and said where sizes up to `largest` fit."""
    order, lines = [], []

    def visit(size):
        order.append(size)
        if size > largest:
            msg = f"layers.3 (Block) at {size} x 16 tokens"
            raise OutOfMemoryError(msg)
        return f"at {size}"

    found = visit_sizes(sizes, visit, device="a card (24.0 GiB)", say=lines.append)
    return order, found, lines


def test_sizes_are_visited_from_the_smallest_up():
    order, found, lines = visited((4, 1, 2, 1), largest=8)
    assert order == [1, 2, 4]
    assert found == {1: "at 1", 2: "at 2", 4: "at 4"}
    assert not lines


def test_a_size_that_does_not_fit_is_left_out_with_all_larger_ones():
    order, found, lines = visited((1, 2, 4, 8), largest=2)
    assert order == [1, 2, 4]
    assert list(found) == [1, 2]
    assert lines == [
        "layers.3 (Block) at 4 x 16 tokens does not fit on a card (24.0 GiB); "
        "left out: microbatch size 4, 8"
    ]


def test_halves_are_tried_where_nothing_fits():
    order, found, lines = visited((12, 24), largest=4)
    assert order == [12, 6, 3]
    assert list(found) == [3]
    assert [line.split("left out: ")[1] for line in lines] == [
        "microbatch size 12, 24; trying 6",
        "microbatch size 6; trying 3",
    ]


def test_a_layer_that_does_not_even_fit_once_is_named():
    with pytest.raises(
        ModelError,
        match=r"layers\.3 \(Block\) at 1 x 16 tokens does not fit on a card "
        r"\(24\.0 GiB\); use a shorter --seq-len",
    ):
        visited((2,), largest=0)
