"""Splits and cards in turn, simulated."""

import dataclasses

import pytest
from baseline_settings import counts, setting
from solver_profiles import REF, cluster, layers

from planner.cards import Cluster, Device, Link
from planner.model_profile import LayerProfile, ModelProfile
from planner.solve import Wishes, best_plan
from planner.solve.baselines import rules
from planner.solve.baselines.pipelines import (
    cards_of,
    in_turn,
    scored,
    splits,
    turn_actions,
    turns,
    usual_setting,
)

SLOW = Link(name="1 s", bandwidth=float("inf"), latency_s=1.0)


def test_recompute_is_all_or_nothing():
    block = {"forward_s": 1.0, "backward_s": 2.0, "activation_bytes": 100}
    rows = tuple(LayerProfile(name=f"layer.{i}", **block) for i in range(6))
    profile = ModelProfile(layers=rows)
    roomy, tight, too_small = (
        splits(setting(profile, cluster(2, memory_bytes=room)), None)[0]
        for room in (10**6, 500, 100)
    )
    # Stages of 3 layers; recompute adds F of two of them to each B.
    assert (roomy.fits, roomy.recompute, roomy.step_s) == (True, "none", 9 * 9.0)
    assert (tight.fits, tight.recompute, tight.step_s) == (True, "full", 9 * 11.0)
    # Two microbatches keep 100 bytes each, and recompute brings one of 100 back.
    assert (too_small.fits, too_small.recompute) == (False, "full")
    assert (too_small.missing_bytes, too_small.card) == (200, "gpu:0")


def test_recompute_that_is_forbidden_is_not_used():
    block = {"forward_s": 1.0, "backward_s": 2.0, "activation_bytes": 100}
    rows = tuple(LayerProfile(name=f"layer.{i}", **block) for i in range(6))
    own = setting(
        ModelProfile(layers=rows), cluster(2, memory_bytes=500), recompute="none"
    )
    assert not scored(own, rules.even_layers(own)).fits


def test_cards_in_turn_take_as_long_as_all_layers_and_transfers():
    rows = layers([1.0] * 6, output_bytes=1)
    own = setting(ModelProfile(layers=rows), cluster(3, link=SLOW), global_batch_size=5)
    by_hand = turns(own)[0]
    # Every microbatch: 6 F of 1 s, 6 B of 2 s, 2 transfers each way.
    assert by_hand.step_s == 5 * (6 + 12 + 4)
    assert by_hand.layers_per_stage == (2, 2, 2)


def test_cards_in_turn_hold_one_microbatch_at_a_time():
    rows = layers([1.0] * 4, activation_bytes=100)
    profile = ModelProfile(layers=rows)
    own = setting(profile, cluster(2, memory_bytes=200), recompute="none")
    assert turns(own)[0].fits
    # 1F1B has two microbatches on the first card.
    assert splits(own, None)[0].missing_bytes == 200


def test_turns_are_drawn_as_they_are():
    rows = turn_actions(2, 2)
    assert [" ".join(map(str, row)) for row in rows] == [
        "0F0 0B0 0F1 0B1",
        "1F0 1B0 1F1 1B1",
    ]


def test_a_card_without_layers_is_left_out():
    devices = tuple(Device(name=f"gpu:{i}", memory_bytes=1) for i in range(3))
    quick = dataclasses.replace(SLOW, latency_s=0.5)
    three = Cluster(devices=devices, links=(SLOW, quick))
    two = cards_of(three, (0, 2))
    assert [device.name for device in two.devices] == ["gpu:0", "gpu:2"]
    # What lies between cards that are no neighbours is as slow as the slowest link.
    assert two.links == (SLOW,)
    assert len(cards_of(three, (1,))) == 1
    own = in_turn(setting(ModelProfile(layers=layers([1.0] * 4)), three), (0, 2))
    assert counts(rules.even_layers(own)) == [2, 2]


def test_beside_an_order_of_our_own_others_run_1f1b():
    profile = ModelProfile(layers=layers([1.0] * 8))
    named = setting(profile, cluster(2), schedule="gpipe")
    assert usual_setting(named) is named
    own = dataclasses.replace(named, schedule="planned", order=turn_actions(2, 8))
    assert usual_setting(own).schedule == "1f1b"
    assert usual_setting(own).actions != own.actions


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved-1f1b", "zb-v"])
def test_a_rule_divides_as_many_stages_as_the_schedule_has(schedule):
    profile = ModelProfile(layers=layers([1.0] * 8))
    own = setting(profile, cluster(2), schedule=schedule)
    for entry in splits(own, None):
        assert len(entry.layers_per_stage) == own.num_stages
        assert sum(entry.layers_per_stage) == 8


def test_the_busiest_card_explains_a_slow_split():
    profile = ModelProfile(layers=layers([1.0] * 4 + [4.0]))
    wishes = Wishes(schedule="1f1b")
    plan = best_plan(profile, cluster(2), wishes, profile_ref=REF)
    by_name = {entry.name: entry for entry in plan.baselines}
    # The plan is 4 + 1 layers of 12 s a microbatch; 3 + 2 has 15 s on the second.
    assert by_name["equal time"].judgement == "as quick as the plan"
    assert (
        "gpu:1 works 15.0 s on each microbatch, no card of the plan more than 12.0 s"
        in by_name["even layers"].judgement
    )
