from dataclasses import replace

import pytest
from report_samples import make_measured, make_plan, make_v_plan

from planner.report import loads


def with_actions(plan, *rows):
    actions = tuple(tuple(row.split()) for row in rows)
    return replace(plan, schedule=replace(plan.schedule, actions=actions))


def test_each_stage_has_the_kinds_of_its_own_actions():
    plan = with_actions(make_plan(), "0F0 0F1 0B0 0I1 0W1", "1F0 1I0 1W0")
    assert loads.kinds_of_stages(plan) == ("FBIW", "FIW")
    assert loads.kinds_of_stages(with_actions(plan)) == ("FB", "FB")


def test_a_split_backward_counts_as_i_and_w_not_as_b_too():
    plan = make_v_plan()
    for parts in (
        loads.predicted_parts(plan),
        loads.measured_parts(plan, make_measured(plan, slower=1.0)),
    ):
        assert parts[1] == pytest.approx({"F": 0.14, "I": 0.156, "W": 0.104})
    mixed = with_actions(plan, "0F0 0F1 0B0 0I1 0W1", "1F0 1B0")
    found = loads.predicted_parts(mixed)
    assert [list(one) for one in found[:2]] == [["F", "I", "W"], ["F", "B"]]
    assert loads.all_kinds(found) == "FBIW"


def test_a_card_takes_as_long_as_its_stages_together():
    plan = make_v_plan()
    parts = loads.predicted_parts(plan)
    assert loads.stage_times_s(parts) == pytest.approx((0.33, 0.4, 0.2, 0.33))
    assert loads.card_times_s(plan, parts) == pytest.approx((0.66, 0.6))


def test_the_bottleneck_is_the_first_of_the_longest():
    assert loads.bottleneck([1.0, 2.0, 2.0]) == 1
