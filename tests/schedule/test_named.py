"""The table of named schedules: what each can do, and what it refuses."""

import pytest

from planner.errors import WishError
from planner.schedule.actions import format_actions, parse_actions
from planner.schedule.named import SCHEDULES, num_in_flight, schedule_actions
from planner.schedule.placement import device_of_stage


def listed(name, num_devices, num_microbatches):
    actions = schedule_actions(name, num_devices, num_microbatches)
    return [" ".join(row) for row in format_actions(actions)]


def test_1f1b_works_with_fewer_microbatches_than_stages():
    assert listed("1f1b", 4, 2) == [
        "0F0 0F1 0B0 0B1",
        "1F0 1F1 1B0 1B1",
        "2F0 2F1 2B0 2B1",
        "3F0 3B0 3F1 3B1",
    ]


@pytest.mark.parametrize("num_stages", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("num_microbatches", [1, 2, 3, 8])
def test_in_flight_equals_the_closed_form(num_stages, num_microbatches):
    gpipe = schedule_actions("gpipe", num_stages, num_microbatches)
    one = schedule_actions("1f1b", num_stages, num_microbatches)
    for stage in range(num_stages):
        assert num_in_flight(gpipe, stage) == num_microbatches
        assert num_in_flight(one, stage) == min(num_stages - stage, num_microbatches)


def test_a_microbatch_is_in_flight_until_its_weight_gradient():
    actions = parse_actions((("0F0", "0I0", "0F1", "0W0", "0I1", "0W1"),))
    assert num_in_flight(actions, 0) == 2


def test_stages_of_one_device_are_in_flight_each_for_itself():
    actions = parse_actions((("0F0", "0F1", "1F0", "1B0", "1F1", "1B1", "0B0", "0B1"),))
    assert [num_in_flight(actions, stage) for stage in (0, 1)] == [2, 1]


def test_the_names_and_what_they_can_do():
    assert {
        name: (
            schedule.placement,
            schedule.min_stages_per_device,
            schedule.max_stages_per_device,
            schedule.splits_backward,
        )
        for name, schedule in SCHEDULES.items()
    } == {
        "1f1b": ("loop", 1, 1, False),
        "gpipe": ("loop", 1, 1, False),
        "interleaved-1f1b": ("loop", 2, None, False),
        "looped-bfs": ("loop", 2, None, False),
        "zb-h1": ("loop", 1, 1, True),
        "interleaved-zb": ("loop", 2, None, True),
        "zb-v": ("v", 2, 2, True),
        "dualpipe-v": ("v", 2, 2, True),
    }


@pytest.mark.parametrize(
    ("placement", "stages_per_device", "devices"),
    [
        ("loop", 1, (0, 1, 2)),
        ("v", 1, (0, 1, 2)),
        ("loop", 2, (0, 1, 2, 0, 1, 2)),
        ("v", 2, (0, 1, 2, 2, 1, 0)),
        ("v", 3, (0, 1, 2, 2, 1, 0, 0, 1, 2)),
    ],
)
def test_stages_are_placed_in_a_loop_or_as_a_v(placement, stages_per_device, devices):
    assert device_of_stage(placement, 3, stages_per_device) == devices


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_fewest_stages_are_taken_if_none_are_said(name):
    fewest = SCHEDULES[name].min_stages_per_device
    assert schedule_actions(name, 2, 4) == schedule_actions(name, 2, 4, fewest)


def test_an_unknown_schedule_is_refused_with_the_known_ones():
    with pytest.raises(WishError, match="'zigzag'; there are 1f1b, gpipe"):
        schedule_actions("zigzag", 2, 2)


def test_a_schedule_without_microbatches_is_refused():
    with pytest.raises(ValueError, match="2 devices, 1 stages a device and 0 micro"):
        schedule_actions("1f1b", 2, 0)


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        (("1f1b", 4, 8, 2), "schedule 1f1b has 1 stage a device, not 2; use ano"),
        (("zb-v", 4, 8, 3), "schedule zb-v has 2 stages a device, not 3"),
        (("looped-bfs", 4, 8, 1), "looped-bfs has at least 2 stages a device, not 1"),
        (
            ("interleaved-1f1b", 4, 9, 2),
            "schedule interleaved-1f1b on 4 devices cannot divide 9 microbatches into "
            "2 equal rounds; use 8 or 12 microbatches (--global-batch-size, "
            "--microbatch-size) or another --schedule",
        ),
        (
            ("dualpipe-v", 4, 7, 2),
            "schedule dualpipe-v on 4 devices needs as many microbatches as its 8 "
            "stages, and there are 7; use at least 8 microbatches",
        ),
    ],
)
def test_what_is_impossible_is_said_with_the_numbers_and_what_to_do(counts, words):
    with pytest.raises(WishError) as caught:
        schedule_actions(*counts)
    assert words in str(caught.value)
