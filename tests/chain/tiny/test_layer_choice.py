"""Two layers of each kind, the first and the last."""

import pytest

from planner.chain.tiny.layer_choice import MAX_LAYERS, MIN_LAYERS, choose_layers


def test_equal_layers_are_cut_down_to_the_least():
    choice = choose_layers({"layer_types": ["full"] * 32}, {}, 32)
    assert choice.kept == (0, 1, 2, 31)
    assert choice.fields == {"layer_types": ["full"] * MIN_LAYERS}


def test_kinds_still_alternate():
    kinds = ["sliding", "sliding", "full"] * 4
    choice = choose_layers({"layer_types": kinds}, {}, 12)
    assert choice.kept == (0, 2, 10, 11)
    assert choice.fields["layer_types"] == ["sliding", "full", "sliding", "full"]


def test_indices_of_layers_are_renumbered():
    fields = {"cross_attention_layers": [3, 8], "layer_types": ["a"] * 12}
    choice = choose_layers(fields, {}, 12)
    assert choice.kept == (0, 3, 8, 11)
    assert choice.fields["cross_attention_layers"] == [1, 2]


@pytest.mark.parametrize(
    ("name", "value", "kept", "tiny"),
    [
        ("first_k_dense_replace", 3, (0, 2, 3, 9), 2),
        ("num_kv_shared_layers", 4, (0, 5, 6, 9), 2),
    ],
)
def test_counts_from_an_end_keep_both_sides(name, value, kept, tiny):
    choice = choose_layers({name: value}, {}, 10)
    assert choice.kept == kept
    assert choice.fields == {name: tiny}


def test_layers_with_settings_of_their_own_are_kinds():
    choice = choose_layers({}, {5: {"heads": 2}}, 8)
    assert choice.kept == (0, 1, 5, 7)


def test_many_kinds_are_not_all_kept():
    kinds = [str(i) for i in range(40)]
    assert len(choose_layers({"layer_types": kinds}, {}, 40).kept) == MAX_LAYERS


def test_a_model_that_is_small_already_stays():
    assert choose_layers({}, {}, 2).kept == (0, 1)


def test_a_list_of_another_length_is_about_something_else():
    choice = choose_layers({"sizes": [1, 2, 3], "layer_types": ["a"] * 6}, {}, 6)
    assert set(choice.fields) == {"layer_types"}
