"""A bad schedule is shown as a grid with the bad row marked."""

import pytest

from planner.schedule.actions import parse_actions
from planner.schedule.validate import validate_actions


def complaint(*rows, num_stages=2, num_microbatches=2):
    actions = parse_actions(tuple(tuple(row.split()) for row in rows))
    with pytest.raises(ValueError, match=r"\d") as caught:
        validate_actions(
            actions, num_stages=num_stages, num_microbatches=num_microbatches
        )
    return str(caught.value)


def test_the_whole_grid_is_shown_with_the_bad_row_marked():
    assert complaint("0F0 0F1 0B0 0B1", "1F0 1F1 1B0") == (
        "stage 1 never does B of microbatch 1\n"
        "  device 0: 0F0 0F1 0B0 0B1\n"
        "> device 1: 1F0 1F1 1B0"
    )


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (("0F0 0F1 0B0 0B1",), "no device works on stage 1"),
        (("0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1 1B1"), "1B1 is there 2 times"),
        (("0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1I1"), "1 never does W of microbatch 1"),
        (("0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1W1"), "1 never does I of microbatch 1"),
        (("0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1 1I1"), "1 does FBI of microbatch 1"),
        (("0F0 0F1 0B0 0B1", "1F0 1F1 1W1 1I1 1B0"), "1 waits for ever before 1W1"),
        (("0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1 1F2"), "beyond the 2 microbatches"),
        (("0F0 0F1 0B0 0B1 2F0", "1F0 1F1 1B0 1B1"), "of stage 2, but 2 exist"),
        (("0F0 0F1 0B0 0B1 1B1", "1F0 1F1 1B0"), "stage 1 is on devices 0 and 1"),
        (("0B0 0F0 0F1 0B1", "1F0 1F1 1B0 1B1"), "device 0 waits for ever before 0B0"),
        (("0F0 0F1 0B0 0B1", "1W0 1F0 1I0 1F1 1B1"), "before 1W0: 1B0 cannot"),
    ],
)
def test_each_mistake_has_its_words(rows, words):
    assert words in complaint(*rows)


def test_devices_that_wait_for_each_other_are_found():
    # Stage 0 wants B of microbatch 0 before it starts microbatch 1; stage 1 wants
    # both outputs first.
    text = complaint("0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1")
    assert text.startswith("device 0 waits for ever before 0B0: 1B0 cannot come first")


def test_a_split_backward_is_a_schedule_too():
    rows = (
        ("0F0", "0F1", "0I0", "0W0", "0B1"),
        ("1F0", "1I0", "1F1", "1I1", "1W0", "1W1"),
    )
    validate_actions(parse_actions(rows), num_stages=2, num_microbatches=2)


def test_several_stages_on_a_device_are_a_schedule_too():
    rows = (("0F0", "1F0", "1B0", "0B0"),)
    validate_actions(parse_actions(rows), num_stages=2, num_microbatches=1)


def test_a_stage_may_split_one_backward_and_not_another():
    rows = (
        ("0F0", "0F1", "3F0", "3I0", "3F1", "3B1", "0I0", "3W0", "0I1", "0W1", "0W0"),
        ("1F0", "2F0", "1F1", "2F1", "2B0", "1I0", "2I1", "1B1", "2W1", "1W0"),
    )
    validate_actions(parse_actions(rows), num_stages=4, num_microbatches=2)


def test_stages_of_one_device_can_wait_for_each_other_for_ever():
    rows = (
        "0F0 3F0 3F1 0F1 3B0 3B1 0B0 0B1",
        "1F0 1F1 2F0 2F1 2B0 2B1 1B0 1B1",
    )
    text = complaint(*rows, num_stages=4)
    assert text.startswith("device 0 waits for ever before 3F0: 2F0 cannot come first")
