"""Our own order against the textbook, the named schedules and hard wishes."""

import random
from itertools import accumulate

import pytest
from hypothesis import given, settings
from order_samples import alike, random_question, random_times, seeds

from planner.errors import InfeasibleError
from planner.schedule.named import SCHEDULES, schedule_actions
from planner.schedule.placement import device_of_stage
from planner.schedule.validate import validate_actions
from planner.simulate import StageTimes, simulate
from planner.solve.order import planned_actions
from planner.solve.order.problem import fits, order_problem, rows_of


@pytest.mark.parametrize(
    ("split", "placement", "per_device", "bubble"),
    [
        # The bubbles of ZB-H1, ZB-V and interleaved ZB with 4 devices and 8
        # microbatches, in no more room than those take: four microbatches.
        ((1.0, 1.0), "loop", 1, 0.111),
        ((1.4, 0.6), "loop", 1, 0.184),
        ((1.0, 1.0), "v", 2, 0.059),
        ((1.4, 0.6), "v", 2, 0.091),
        ((1.0, 1.0), "loop", 2, 0.059),
        ((1.4, 0.6), "loop", 2, 0.101),
    ],
)
def test_equal_stages_reach_the_zero_bubble_schedules(
    split, placement, per_device, bubble
):
    homes = device_of_stage(placement, 4, per_device)
    times = alike(len(homes), *split)
    kept = [1 / per_device] * len(homes)
    actions = planned_actions(times, homes, 8, room_bytes=[4] * 4, kept_bytes=kept)
    assert round(simulate(actions, times).bubble_fraction, 3) <= bubble


def test_eight_devices_reach_zb_v_too():
    homes = device_of_stage("v", 8, 2)
    times, kept = alike(16), [0.5] * 16
    actions = planned_actions(times, homes, 16, room_bytes=[8] * 8, kept_bytes=kept)
    # (p - 1) F of fill for each half, and nothing else: 96 + 7.
    assert simulate(actions, times).makespan_s == pytest.approx(103)


@settings(max_examples=15, deadline=None)
@given(rng=seeds)
def test_never_slower_than_a_named_schedule_that_fits(rng):
    schedule = rng.choice(list(SCHEDULES.values()))
    devices, per_device = rng.choice([2, 3]), schedule.min_stages_per_device
    count = 2 * devices
    homes = device_of_stage(schedule.placement, devices, per_device)
    times = random_times(rng, len(homes))
    named = schedule_actions(schedule.name, devices, count)
    kept = [float(rng.randint(1, 3)) for _ in homes]
    rooms = _rooms_for(times, homes, count, kept, named)
    actions = planned_actions(
        times,
        homes,
        count,
        room_bytes=rooms,
        kept_bytes=kept,
        starts=[named],
        num_evaluations=30,
    )
    quick_s = simulate(actions, times).makespan_s
    assert quick_s <= simulate(named, times).makespan_s * (1 + 1e-9)


def _rooms_for(times, homes, count, kept, actions):
    """What an order needs of each device, to the byte."""
    growth = order_problem(times, homes, count, kept_bytes=kept).growth_bytes
    return [max(accumulate(growth[code] for code in row)) for row in rows_of(actions)]


@settings(max_examples=30, deadline=None)
@given(rng=seeds)
def test_every_order_is_valid_and_fits(rng):
    question = random_question(rng)
    actions = planned_actions(**question, num_evaluations=20)
    validate_actions(
        actions,
        num_stages=len(question["times"]),
        num_microbatches=question["num_microbatches"],
    )
    problem = order_problem(**question)
    for device, row in enumerate(rows_of(actions)):
        assert fits(problem, device, row)


def test_a_heavy_head_on_the_card_of_a_thin_first_stage_gains_a_tenth():
    times = [
        StageTimes(
            forward_s=size,
            backward_s=2 * size,
            input_grad_s=1.1 * size,
            weight_grad_s=0.9 * size,
            send_forward_s=0.1,
            send_backward_s=0.1,
        )
        for size in (0.25, 1, 1, 1, 1, 1, 1, 1.75)
    ]
    homes = device_of_stage("v", 4, 2)
    named_s = min(
        simulate(schedule_actions(name, 4, 8), times).makespan_s
        for name in ("zb-v", "dualpipe-v")
    )
    # ZB-V takes 60.0 s; no order takes less than 53.0 s.
    actions = planned_actions(times, homes, 8, room_bytes=[8] * 4, kept_bytes=[1.0] * 8)
    assert simulate(actions, times).makespan_s < 0.91 * named_s


def test_b_stays_whole_where_splitting_only_costs():
    times = alike(1, 2.0, 2.0)
    (row,) = planned_actions(times, (0,), 4)
    assert {action.kind for action in row} == {"F", "B"}


def test_times_without_i_and_w_split_nothing():
    times = (StageTimes(forward_s=1.0, backward_s=2.0),) * 4
    actions = planned_actions(times, range(4), 8)
    assert {action.kind for row in actions for action in row} == {"F", "B"}
    assert simulate(actions, times).makespan_s == pytest.approx((8 + 3) * 3)


def test_the_same_question_has_the_same_answer():
    question = random_question(random.Random(5))
    assert planned_actions(**question) == planned_actions(**question)


def test_a_device_too_small_for_one_microbatch_is_named():
    with pytest.raises(
        InfeasibleError, match=r"keeps 2\.00 KiB on device 1, which has 1\.00 KiB"
    ):
        planned_actions(
            alike(2), (0, 1), 4, room_bytes=[4096, 1024], kept_bytes=[1024, 2048]
        )


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"device_of_stage": (0, 2)}, "do not belong together"),
        ({"kept_bytes": [1.0]}, "do not belong together"),
        ({"room_bytes": [1.0]}, "do not belong together"),
        ({"num_microbatches": 0}, "at least one"),
        ({"starts": [schedule_actions("1f1b", 2, 3)]}, "beyond|never"),
        (
            {"device_of_stage": (1, 0), "starts": [schedule_actions("1f1b", 2, 4)]},
            "homes",
        ),
    ],
)
def test_arguments_that_do_not_match_are_refused(changed, complaint):
    question = {
        "times": alike(2),
        "device_of_stage": (0, 1),
        "num_microbatches": 4,
        **changed,
    }
    with pytest.raises(ValueError, match=complaint):
        planned_actions(**question)


def test_a_start_that_exceeds_the_room_is_passed_over():
    actions = planned_actions(
        alike(2),
        (0, 1),
        4,
        room_bytes=[1, 1],
        kept_bytes=[1, 1],
        starts=[schedule_actions("gpipe", 2, 4)],
    )
    assert [str(action) for action in actions[0][:2]] == ["0F0", "0B0"]
