from dataclasses import replace

import pytest
from report_samples import make_measured, make_plan, make_v_plan

from planner.report import loads


def with_actions(plan, *rows):
    actions = tuple(tuple(row.split()) for row in rows)
    return replace(plan, schedule=replace(plan.schedule, actions=actions))


def test_each_stage_has_the_kinds_of_its_own_actions_as_often_as_they_are():
    plan = make_plan(num_microbatches=2)
    mixed = with_actions(plan, "0F0 0F1 0B0 0I1 0W1", "1F0 1F1 1I0 1W0 1I1 1W1")
    assert loads.kinds_of_stages(mixed) == (
        {"F": 1, "B": 0.5, "I": 0.5, "W": 0.5},
        {"F": 1, "I": 1, "W": 1},
    )
    assert loads.kinds_of_stages(with_actions(plan)) == ({"F": 1, "B": 1},) * 2


def test_a_split_backward_counts_as_i_and_w():
    plan = make_v_plan()
    for parts in (
        loads.predicted_parts(plan),
        loads.measured_parts(plan, make_measured(plan, slower=1.0)),
    ):
        assert parts[1] == pytest.approx({"F": 0.14, "I": 0.156, "W": 0.104})
        assert loads.all_kinds(parts) == "FIW"


def test_a_stage_whose_backward_is_split_now_and_then_takes_the_mean():
    plan = make_v_plan(num_microbatches=4)
    own = "2F0 2F1 2F2 2F3 2B0 2B1 2B2 2I3 2W3"
    rows = (" ".join(row) for row in plan.schedule.actions)
    first, second = (" ".join(n for n in row.split() if n[0] != "2") for row in rows)
    found = loads.predicted_parts(with_actions(plan, first, f"{second} {own}"))[2]
    assert found == pytest.approx(
        {"F": 0.07, "B": 0.75 * 0.13, "I": 0.25 * 0.078, "W": 0.25 * 0.052}
    )


def test_a_card_takes_as_long_as_its_stages_together():
    plan = make_v_plan()
    parts = loads.predicted_parts(plan)
    assert loads.stage_times_s(parts) == pytest.approx((0.33, 0.4, 0.2, 0.33))
    assert loads.card_times_s(plan, parts) == pytest.approx((0.66, 0.6))


def test_the_bottleneck_is_the_first_of_the_longest():
    assert loads.bottleneck([1.0, 2.0, 2.0]) == 1


@pytest.mark.parametrize("times_s", [[2.0], [2.0, 2.0], [1.0, 1.009], [0.0, 0.0]])
def test_nobody_waits_for_a_card_that_takes_no_longer_than_the_mean(times_s):
    assert loads.bottleneck(times_s) is None
