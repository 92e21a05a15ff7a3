"""Cards of a machine by the names of a plan."""

import dataclasses

import pytest
from plan_samples import small_plan

from planner.runtime.own_card import card_number

A3090, A4090 = "NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 4090"


def plan_for(names, given=()):
    plan = small_plan()
    stages = [
        dataclasses.replace(stage, device=name)
        for stage, name in zip(plan.stages, names, strict=True)
    ]
    return dataclasses.replace(plan, stages=tuple(stages), given_cards=given)


@pytest.mark.parametrize(
    ("names", "given", "found", "expected"),
    [
        (["rtx3090:0", "rtx3090:1"], (), [A3090, A3090], [0, 1]),
        (["rtx3090:0", "rtx4090:0"], (), [A4090, A3090], [1, 0]),
        (["rtx3090:1", "rtx4090:0"], (), [A4090, A3090, A3090], [2, 0]),
        # Not what was planned for, or of no known name: as they were given.
        (["gpu:1", "gpu:0"], ("gpu:0", "gpu:1"), ["A card", "A card"], [1, 0]),
        (["gpu:2", "gpu:1"], ("gpu:0", "gpu:1", "gpu:2"), [A3090] * 3, [2, 1]),
        # There are fewer than were given: in a row.
        (["gpu:2", "gpu:1"], ("gpu:0", "gpu:1", "gpu:2"), [A3090] * 2, [0, 1]),
        (["gpu:0", "gpu:1"], (), ["A card", "A card"], [0, 1]),
    ],
)
def test_cards_go_by_name_and_then_by_the_order_given(names, given, found, expected):
    plan = plan_for(names, given)
    assert [card_number(plan, rank, found) for rank in (0, 1)] == expected
