"""A profile as a person reads it."""

import pytest

from planner.model_profile import (
    LayerProfile,
    ModelInfo,
    ModelProfile,
    ProfiledDevice,
)
from planner.optimizers import OPTIMIZERS, optimizer_spec
from planner.profile_text import (
    card_sentence,
    cost_sentence,
    describe_profile,
    layer_table,
    layer_variants,
    state_sentence,
)
from planner.units import GIB, MIB


def layer(name, kind="Block", **costs):
    return LayerProfile(name=name, kind=kind, **costs)


def blocks(times_ms, **costs):
    return [
        layer(f"blocks.{i}", forward_s=t * 1e-3, backward_s=2e-3 * t, **costs)
        for i, t in enumerate(times_ms)
    ]


def profile_of(*middle, head_ms=0.0, **fields):
    head = layer("head", "head", forward_s=head_ms * 1e-3)
    return ModelProfile(
        layers=(layer("embedding", "embedding"), *middle, head), **fields
    )


def first_cells(profile):
    lines = layer_table(profile).splitlines()[2:]
    return [line.split("  ")[0] for line in lines]


def test_equal_layers_share_a_row_and_the_last_row_sums_up():
    costs = {
        "num_parameters": 2_000_000,
        "forward_flops": 3 * 10**9,
        "activation_bytes": 5 * MIB,
        "recompute_activation_bytes": MIB,
        "output_bytes": MIB // 2,
    }
    table = layer_table(profile_of(*blocks([2, 2, 2], **costs)))
    header, _, embedding, row, _, total = table.splitlines()
    assert header.split()[:5] == ["layers", "parameters", "GFLOPs", "F", "ms"]
    assert embedding.split()[:3] == ["1", "x", "embedding"]
    figures = ["2.00", "M", "3.00", "2.00", "4.00", "5.00", "1.00", "0.50"]
    assert row.split() == ["3", "x", "Block", *figures]
    assert total.split() == [
        *("all", "6.00", "M", "9.00", "6.00", "12.0", "15.0", "3.00")
    ]


def test_kinds_that_alternate_have_one_row_each():
    costs = [10, 1] * 3
    profile = profile_of(*blocks(costs))
    assert first_cells(profile) == [
        "1 x embedding",
        "3 x Block like blocks.0",
        "3 x Block like blocks.1",
        "1 x head",
        "all",
    ]


def test_a_slight_difference_makes_no_row_of_its_own():
    (_, alike, _) = layer_variants(profile_of(*blocks([1.0, 1.04, 0.97])).layers)
    assert len(alike) == 3


@pytest.mark.parametrize("key", ["num_parameters", "activation_bytes", "forward_flops"])
def test_a_noticeable_difference_does(key):
    rows = [layer("a", **{key: 100}), layer("b", **{key: 106})]
    assert len(layer_variants(rows)) == 2


def test_the_heading_tells_where_and_at_which_sizes():
    measured = profile_of(
        model=ModelInfo(id="tiny", num_parameters=6_000_000),
        device=ProfiledDevice(name="cpu", kind="measured"),
    )
    more = ModelProfile(layers=measured.layers, microbatches={"4": measured.layers})
    first, second = (describe_profile(p).splitlines()[0] for p in (measured, more))
    assert first.startswith("tiny: 6.00 M parameters in 2 layers, measured on cpu")
    assert second.endswith(
        "computed for a device, bfloat16, sequences of 1 tokens, "
        "microbatches of 1 (also of 4)"
    )


def test_every_optimizer_has_its_training_state():
    profile = profile_of(*blocks([1], num_parameters=GIB))
    sentence = state_sentence(profile)
    assert "16.0 GiB with AdamW (16 bytes a parameter)" in sentence
    for name in OPTIMIZERS:
        spec = optimizer_spec(name, profile.dtype)
        size = spec.bytes_per_parameter
        assert f"with {spec.title} ({size} bytes a parameter)" in sentence


def test_a_tied_embedding_counts_once_in_the_training_state():
    tied = {"num_parameters": GIB, "num_tied_parameters": GIB}
    ends = layer("embedding", "embedding", **tied), layer("head", "head", **tied)
    profile = ModelProfile(layers=ends, ties=(("embedding", "head"),))
    assert "16.0 GiB with AdamW" in state_sentence(profile)


def test_a_costly_head_is_told_in_blocks():
    assert cost_sentence(profile_of(*blocks([2, 2, 2]), head_ms=24.0)) == (
        "The costliest layer is the head: it takes 24.0 ms for F and B, as long as "
        "4.00 blocks."
    )


def test_a_block_unlike_the_others_is_the_costliest():
    sentence = cost_sentence(profile_of(*blocks([2, 5, 2]), head_ms=1.0))
    assert "The costliest layer is blocks.1" in sentence
    assert "as long as 2.50 blocks" in sentence


def test_a_cheap_head_is_told_in_blocks_too():
    assert cost_sentence(profile_of(*blocks([2, 2, 2]), head_ms=3.0)) == (
        "No layer takes longer than a block, 6.00 ms for F and B; the head takes as "
        "long as 0.50 blocks."
    )


def test_a_profile_without_times_says_so():
    assert cost_sentence(profile_of()) == "The profile has no times."


def test_the_least_cards_depend_on_the_optimizer():
    # 3 blocks of 1 Gi parameters: 16 GiB each with AdamW, 8 with SGD.
    sentence = card_sentence(profile_of(*blocks([1, 1, 1], num_parameters=GIB)))
    assert sentence.startswith(
        "At least 3 cards of 24 GB with AdamW, 2 with AdamW in bf16:"
    )
    assert "22.2 GiB usable on each" in sentence


def test_one_card_is_a_card():
    assert "At least 1 card of 24 GB with AdamW:" in card_sentence(profile_of())


def test_a_layer_larger_than_a_card_is_told():
    sentence = card_sentence(profile_of(*blocks([1], num_parameters=2 * GIB)))
    assert sentence == (
        "No number of cards of 24 GB can do with AdamW, 1 with AdamW in bf16: some "
        "layer alone needs more than the 22.2 GiB usable of one."
    )
