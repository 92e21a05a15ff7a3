"""What is said when nothing fits, and that every offer holds."""

import dataclasses

import pytest
from solver_profiles import REF, cluster, layers

from planner.cards import DEFAULT_CUDA_RESERVE_BYTES
from planner.cluster import parse_cluster
from planner.errors import InfeasibleError
from planner.model_profile import LayerProfile, ModelProfile, ProfiledDevice
from planner.solve import Wishes, best_plan
from planner.units import GIB


def refused(profile, cards, **wishes):
    with pytest.raises(InfeasibleError) as caught:
        best_plan(profile, cards, Wishes(**wishes), profile_ref=REF)
    return caught.value


def test_llama_moe_does_not_fit_four_cards_of_24_gib():
    # 6.74 B parameters at 16 bytes.
    rows = layers([1e-3] * 34, num_parameters=6_740_000_000 // 34)
    device = ProfiledDevice(name="rtx3090ti", memory_bytes=24 * GIB)
    profile = ModelProfile(layers=rows, device=device)
    error = refused(profile, parse_cluster("4", profile))
    text = str(error)
    assert "needs 100.4 GiB for weights, gradients and AdamW against 96.0 GiB" in text
    assert error.exit_code == 3
    offer = error.would_fit[0]
    assert offer["arguments"][:2] == ["--gpus", "5"]
    plan = best_plan(profile, parse_cluster("5", profile), Wishes(), profile_ref=REF)
    assert plan.stages[0].predicted.memory_bytes.overhead == DEFAULT_CUDA_RESERVE_BYTES


def test_the_shortfall_is_that_of_the_least_bad_cut():
    # Three layers of 1600 bytes on two cards of 3000: one card gets two layers.
    profile = ModelProfile(layers=layers([1.0] * 3, num_parameters=100))
    error = refused(profile, cluster(2, memory_bytes=3000))
    assert error.shortfall_bytes == 2 * 1600 - 3000
    assert "lacks 200 B of 2.93 KiB" in str(error)
    assert "weights 400 B, gradients 400 B, optimizer 2.34 KiB" in str(error)


def test_a_card_without_memory_is_the_one_that_is_named():
    profile = ModelProfile(layers=layers([1.0] * 4, num_parameters=100))
    cards = cluster(3, memory_bytes=10_000)
    empty = dataclasses.replace(cards.devices[1], memory_bytes=0)
    cards = dataclasses.replace(
        cards, devices=(cards.devices[0], empty, cards.devices[2])
    )
    error = refused(profile, cards)
    assert error.stage == 1
    assert "gpu:1" in str(error)


def activations(activation_bytes, count=6):
    block = {"activation_bytes": activation_bytes, "forward_s": 1.0}
    return tuple(LayerProfile(name=f"layer.{i}", **block) for i in range(count))


def test_one_more_card_is_offered_with_its_link():
    profile = ModelProfile(
        layers=layers([1.0] * 4, num_parameters=100, output_bytes=10),
        device=ProfiledDevice(name="rtx3090", memory_bytes=2500),
    )
    links = "1GB/s,1s,1GB/s,2s"
    error = refused(profile, parse_cluster("3", profile, link=links, reserve="0"))
    arguments = error.would_fit[0]["arguments"]
    assert arguments[:4] == ["--gpus", "4", "--link", links + ",1GB/s,2s"]
    cards = parse_cluster("4", profile, link=arguments[3], reserve="0")
    batch = int(arguments[arguments.index("--global-batch-size") + 1])
    plan = best_plan(profile, cards, Wishes(global_batch_size=batch), profile_ref=REF)
    # The lever is a plan that was found soon; the search may find a quicker one.
    assert plan.predicted.step_s <= error.would_fit[0]["step_s"] * (1 + 1e-9)


def test_recompute_is_offered_where_it_was_forbidden():
    profile = ModelProfile(layers=activations(100))
    cards = cluster(2, memory_bytes=310)
    error = refused(profile, cards, recompute="none")
    assert {"--recompute", "auto"} <= {*error.would_fit[0]["arguments"]}
    plan = best_plan(profile, cards, Wishes(), profile_ref=REF)
    assert plan.predicted.step_s == pytest.approx(error.would_fit[0]["step_s"])


def test_a_smaller_profiled_microbatch_is_offered():
    profile = ModelProfile(
        layers=activations(400),
        microbatch_size=4,
        microbatches={"1": activations(100), "2": activations(200)},
    )
    error = refused(
        profile,
        cluster(2, memory_bytes=700),
        microbatch_size=4,
        recompute="none",
        schedule="1f1b",
    )
    offers = [offer["arguments"] for offer in error.would_fit]
    assert ["--microbatch-size", "1"] in offers
    assert ["--microbatch-size", "2"] not in offers


def test_1f1b_is_offered_where_gpipe_was_wished():
    profile = ModelProfile(layers=activations(100))
    cards = cluster(2, memory_bytes=700)
    error = refused(profile, cards, schedule="gpipe", recompute="none")
    assert ["--schedule", "1f1b"] in [o["arguments"] for o in error.would_fit]


def test_a_better_cut_is_offered_where_the_wish_does_not_fit():
    profile = ModelProfile(layers=layers([1.0] * 4, num_parameters=100))
    error = refused(profile, cluster(2, memory_bytes=3300), layers_per_stage=(1, 3))
    assert [o["arguments"] for o in error.would_fit] == [["--layers-per-stage", "2,2"]]


def test_a_layer_that_fits_no_card_leaves_no_offer():
    rows = (*layers([1.0] * 3), LayerProfile(name="giant", num_parameters=10**6))
    error = refused(ModelProfile(layers=rows), cluster(2, memory_bytes=10**6))
    assert error.would_fit == ()
    assert "would make it fit" in str(error)


def test_weights_that_fit_are_not_enough():
    # 22: a cap between the weights and weights + gradients + AdamW.
    profile = ModelProfile(layers=layers([1.0] * 4, num_parameters=100))
    refused(profile, cluster(2, memory_bytes=2 * 2 * 200))
    # 23: a cap of exactly 16 bytes a parameter, once activations count.
    rows = layers([1.0] * 4, num_parameters=100, activation_bytes=1)
    refused(ModelProfile(layers=rows), cluster(2, memory_bytes=2 * 16 * 100))
