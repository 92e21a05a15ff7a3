"""Copies of the pipeline beside pipelines of more cards."""

import random
from dataclasses import replace

import pytest
from solver_profiles import random_profile

from planner.cards import LINKS, Cluster, Device, Link
from planner.errors import InfeasibleError, WishError
from planner.memory import stage_parameters
from planner.model_profile import LayerProfile, ModelProfile
from planner.optimizers import optimizer_spec
from planner.plan import ProfileRef
from planner.plan_text import describe_plan
from planner.simulate import all_reduce_s
from planner.solve import Wishes, best_plan, check_plan, judge_again
from planner.solve.copies import copy_counts, joined, parts_of

REFERENCE = ProfileRef(path="", sha256="")


def cards(count, memory_bytes=10**12, link="pcie4x8"):
    return Cluster(
        devices=tuple(
            Device(name=f"card:{i}", memory_bytes=memory_bytes) for i in range(count)
        ),
        links=(LINKS[link],),
    )


def even_profile(num_layers=8):
    layers = tuple(
        LayerProfile(
            name=f"layer.{i}",
            num_parameters=1_000_000,
            forward_s=0.01,
            backward_s=0.02,
            activation_bytes=1000,
            output_bytes=1000,
        )
        for i in range(num_layers)
    )
    return ModelProfile(layers=layers)


def solved(profile, cluster, **wishes):
    return best_plan(profile, cluster, Wishes(**wishes), profile_ref=REFERENCE)


@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_parts_are_the_cards_in_order(count):
    cluster = cards(6)
    parts = parts_of(cluster, count)
    assert [len(part) for part in parts] == [6 // count] * count
    assert joined(parts) == cluster


@pytest.mark.parametrize(
    ("cluster", "batch", "expected"),
    [
        (cards(8), 16, [1, 2, 4, 8]),
        (cards(6), 4, [1, 2]),
        (cards(1), 4, [1]),
        (
            replace(
                cards(2), devices=(*cards(1).devices, Device(name="b", memory_bytes=1))
            ),
            4,
            [1],
        ),
        (replace(cards(3), links=(LINKS["pcie4x8"], LINKS["pcie3x4"])), 6, [1]),
    ],
)
def test_only_even_parts_of_equal_cards_are_tried(cluster, batch, expected):
    assert list(copy_counts(cluster, batch, Wishes(num_copies=None))) == expected


def test_a_cut_that_was_given_is_for_all_cards():
    wishes = Wishes(num_copies=None, layers_per_stage=(4, 4))
    assert list(copy_counts(cards(2), 8, wishes)) == [1]


@pytest.mark.parametrize(
    ("cluster", "batch", "count", "match"),
    [
        (cards(4), 8, 3, "4 cards are not 3 equal parts"),
        (cards(4), 6, 4, "4 do not divide the global batch of 6"),
        (cards(4), 8, 0, "at least one"),
    ],
)
def test_a_number_that_cannot_be_is_refused(cluster, batch, count, match):
    with pytest.raises(WishError, match=match):
        solved(even_profile(), cluster, num_copies=count, global_batch_size=batch)


@pytest.mark.parametrize("seed", range(25))
def test_auto_is_the_best_of_all_numbers(seed):
    rng = random.Random(seed)
    profile = random_profile(rng)
    cluster = cards(rng.choice([2, 3, 4]), rng.choice([1500, 2500, 4000, 10_000]))
    if rng.random() < 0.5:
        slow = Link(name="slow", bandwidth=100.0, latency_s=0.2)
        cluster = replace(cluster, links=(slow,))
    wishes = {
        "schedule": "1f1b",
        "optimizer": "adamw",
        "global_batch_size": 12,
        "keeps_cards": True,
    }
    every = []
    for count in (1, 2, 3, 4):
        try:
            every.append(solved(profile, cluster, num_copies=count, **wishes))
        except (WishError, InfeasibleError):
            continue
    if not every:
        with pytest.raises((InfeasibleError, WishError)):
            solved(profile, cluster, num_copies=None, **wishes)
        return
    found = solved(profile, cluster, num_copies=None, **wishes)
    best_s = min(plan.predicted.step_s for plan in every)
    assert found.predicted.step_s == pytest.approx(best_s, rel=1e-6)
    assert found.solver.bound_s <= found.predicted.step_s * (1 + 1e-9)
    check_plan(found, profile)


def test_gradients_are_summed_over_a_ring():
    profile, cluster = even_profile(), cards(4)
    plan = solved(profile, cluster, num_copies=2, schedule="1f1b")
    assert plan.copies == (("card:2", "card:3"),)
    assert plan.num_processes == 4
    fullest = max(
        stage_parameters(profile.layers[x.first_layer : x.last_layer + 1], ())
        for x in plan.stages
    )
    gradient_bytes = optimizer_spec(plan.optimizer.name, profile.dtype).gradient_bytes
    expected_s = all_reduce_s(fullest * gradient_bytes, 2, cluster.links[0])
    predicted = plan.predicted
    assert predicted.reduce_s == pytest.approx(expected_s, rel=1e-9)
    assert predicted.step_s == pytest.approx(
        predicted.makespan_s
        + predicted.tie_s
        + predicted.reduce_s
        + predicted.optimizer_s
    )


def test_room_for_the_whole_model_on_each_half_makes_copies_quicker():
    profile = even_profile()
    free = solved(profile, cards(4, link="free"), num_copies=None, global_batch_size=16)
    assert free.num_copies == 4
    assert free.predicted.bubble_fraction == 0
    needed = sum(stage.predicted.memory_bytes.total for stage in free.stages)
    small = solved(
        profile,
        cards(4, memory_bytes=needed // 3, link="free"),
        num_copies=None,
        global_batch_size=16,
    )
    assert small.num_copies == 1


def test_a_slow_link_makes_a_pipeline_quicker():
    slow = replace(LINKS["pcie3x4"], bandwidth=1e7)
    cluster = replace(cards(2), links=(slow,))
    plan = solved(even_profile(), cluster, num_copies=None)
    assert plan.num_copies == 1


def test_what_a_person_reads_names_the_copies():
    plan = solved(even_profile(), cards(4), num_copies=2, schedule="1f1b")
    text = describe_plan(plan)
    assert "on 4 cards: 2 copies on 2 cards each, 1f1b" in text
    assert "the same on card:2, card:3; summing gradients" in text
    assert "of 4 cards busy" in text
    alone = solved(even_profile(), cards(4), num_copies=4)
    assert "links: pcie4x8 (given)" in describe_plan(alone)


def test_a_plan_with_copies_is_judged_again_as_it_was():
    profile, cluster = even_profile(), cards(4)
    plan = solved(profile, cluster, num_copies=2, schedule="1f1b")
    again = judge_again(plan, profile, cluster)
    assert again.step_s == pytest.approx(plan.predicted.step_s)


def test_more_cards_than_layers_are_copies():
    plan = solved(even_profile(3), cards(8), num_copies=None, global_batch_size=16)
    assert plan.num_processes == 8
    assert plan.num_devices <= 3
    with pytest.raises(WishError, match="8 cards for 3 layers"):
        solved(even_profile(3), cards(8), num_copies=1, global_batch_size=16)


def test_a_cut_by_hand_may_have_copies():
    plan = solved(
        even_profile(4),
        cards(4),
        num_copies=2,
        layers_per_stage=(3, 1),
        schedule="1f1b",
    )
    assert [len(stage.layers) for stage in plan.stages] == [3, 1]
    assert plan.num_copies == 2
