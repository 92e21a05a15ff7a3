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
    wishes = {"optimizer": "adamw", "keeps_cards": True, **wishes}
    with pytest.raises(InfeasibleError) as caught:
        best_plan(profile, cards, Wishes(**wishes), profile_ref=REF)
    return caught.value


def offer_of(error, option):
    """The one whose first option this is."""
    (found,) = (x for x in error.would_fit if x["arguments"][0] == option)
    return found


def test_llama_moe_does_not_fit_four_cards_of_24_gib():
    # 6.74 B parameters at 16 bytes.
    rows = layers([1e-3] * 34, num_parameters=6_740_000_000 // 34)
    device = ProfiledDevice(name="rtx3090ti", memory_bytes=24 * GIB)
    profile = ModelProfile(layers=rows, device=device)
    error = refused(profile, parse_cluster("4", profile))
    text = str(error)
    assert "needs 100.4 GiB for weights, gradients and AdamW against 96.0 GiB" in text
    assert error.exit_code == 3
    assert offer_of(error, "--gpus")["arguments"][:2] == ["--gpus", "5"]
    wishes = Wishes(optimizer="adamw")
    plan = best_plan(profile, parse_cluster("5", profile), wishes, profile_ref=REF)
    assert plan.stages[0].predicted.memory_bytes.overhead == DEFAULT_CUDA_RESERVE_BYTES


def test_llama_moe_fits_four_cards_with_weights_that_are_rounded_at_random():
    rows = layers([1e-3] * 34, num_parameters=6_740_000_000 // 34)
    device = ProfiledDevice(name="rtx3090ti", memory_bytes=24 * GIB)
    profile = ModelProfile(layers=rows, device=device)
    cards = parse_cluster("4", profile)
    offer = offer_of(refused(profile, cards), "--optimizer")
    assert offer["arguments"] == ["--optimizer", "adamw-bf16"]
    for wishes in (Wishes(optimizer="adamw-bf16"), Wishes()):
        plan = best_plan(profile, cards, wishes, profile_ref=REF)
        assert plan.optimizer.name == "adamw-bf16"
        assert plan.optimizer.bytes_per_parameter == 8
        assert plan.predicted.step_s <= offer["step_s"] * (1 + 1e-9)
    assert plan.optimizer.passed_over == ("adamw",)


def test_where_everything_fits_the_optimizer_changes_nothing_that_it_need_not():
    device = ProfiledDevice(optimizer_s_per_parameter={"adamw": 0.1})
    profile = ModelProfile(layers=layers([1.0] * 4, num_parameters=5), device=device)
    plan = best_plan(profile, cluster(2), Wishes(), profile_ref=REF)
    assert plan.optimizer.name == "adamw"
    assert plan.optimizer.passed_over == ()


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
    offer = offer_of(error, "--gpus")
    arguments = offer["arguments"]
    assert arguments[:4] == ["--gpus", "4", "--link", links + ",1GB/s,2s"]
    cards = parse_cluster("4", profile, link=arguments[3], reserve="0")
    batch = int(arguments[arguments.index("--global-batch-size") + 1])
    wishes = Wishes(global_batch_size=batch, optimizer="adamw")
    plan = best_plan(profile, cards, wishes, profile_ref=REF)
    # The lever is a plan that was found soon; the search may find a quicker one.
    assert plan.predicted.step_s <= offer["step_s"] * (1 + 1e-9)


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
    offer = offer_of(error, "--layers-per-stage")
    assert offer["arguments"] == ["--layers-per-stage", "2,2"]


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
