"""Buffers between stages, counted by hand."""

from planner.memory import communication_bytes


def test_buffers_are_held_for_every_microbatch_both_ways():
    assert communication_bytes(num_microbatches=8, input_bytes=5, output_bytes=3) == (
        8 * (5 + 5) + 8 * (3 + 3)
    )
