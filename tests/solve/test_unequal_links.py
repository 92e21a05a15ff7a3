"""Every boundary between stages has its own link."""

import dataclasses

import pytest
from solver_profiles import REF, cluster, layers

from planner.cards import Link
from planner.model_profile import ModelProfile
from planner.solve import Wishes, best_plan
from planner.solve.columns import ColumnTables
from planner.solve.settings import settings_of

QUICK = Link(name="quick", bandwidth=100.0, latency_s=1.0)
SLOW = Link(name="slow", bandwidth=10.0, latency_s=2.0)


def joined_by(*links):
    return dataclasses.replace(cluster(len(links) + 1), links=links)


def solve(profile, cards, **wishes):
    return best_plan(
        profile, cards, Wishes(keeps_cards=True, **wishes), profile_ref=REF
    )


def test_each_transfer_takes_the_time_of_its_own_link():
    profile = ModelProfile(layers=layers([1.0] * 3, output_bytes=100))
    plan = solve(profile, joined_by(QUICK, SLOW))
    sends_s = [
        (stage.predicted.send_backward_s, stage.predicted.send_forward_s)
        for stage in plan.stages
    ]
    assert sends_s == [(0.0, 2.0), (2.0, 12.0), (12.0, 0.0)]


def test_columns_have_the_times_of_the_stages_they_stand_for():
    profile = ModelProfile(layers=layers([1.0, 2.0, 3.0, 4.0], output_bytes=50))
    wishes = Wishes(schedule="1f1b", recompute="none", global_batch_size=2)
    (setting,) = settings_of(profile, joined_by(SLOW, QUICK), wishes)
    columns = ColumnTables(setting).without_choice(full=False)
    sends_s = {
        stage: (set(columns.times_s[5, own]), set(columns.times_s[4, own]))
        for stage in range(3)
        for own in [columns.stage == stage]
    }
    assert sends_s == {0: ({0.0}, {7.0}), 1: ({7.0}, {1.5}), 2: ({1.5}, {0.0})}


@pytest.mark.parametrize("slow", [0, 1])
def test_a_slow_pair_carries_the_smaller_output(slow):
    # Two small outputs, each next to a large one; the cuts move to where the
    # slow link has little to carry.
    sizes = [1000, 1, 1000, 1000, 1, 1000, 0]
    rows = tuple(
        dataclasses.replace(row, output_bytes=size)
        for row, size in zip(layers([1.0] * 7), sizes, strict=True)
    )
    links = [Link(name="free", bandwidth=float("inf"), latency_s=0.0)] * 2
    links[slow] = SLOW
    plan = solve(ModelProfile(layers=rows), joined_by(*links), global_batch_size=4)
    assert rows[plan.stages[slow].last_layer].output_bytes == 1
    assert [link.name for link in plan.links] == [link.name for link in links]


def test_a_link_that_takes_no_time_has_no_bandwidth_in_a_plan():
    free = Link(name="free", bandwidth=float("inf"), latency_s=0.0)
    profile = ModelProfile(layers=layers([1.0] * 2))
    (link,) = solve(profile, joined_by(free)).links
    assert (link.bandwidth, link.latency_s, link.origin) == (None, 0.0, "given")


def test_a_slower_link_never_makes_a_plan_quicker():
    profile = ModelProfile(layers=layers([1.0, 2.0, 1.0, 3.0], output_bytes=10))
    fast_s = solve(profile, joined_by(QUICK, QUICK)).predicted.step_s
    for links in ((QUICK, SLOW), (SLOW, QUICK), (SLOW, SLOW)):
        assert solve(profile, joined_by(*links)).predicted.step_s > fast_s
