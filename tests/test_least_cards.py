"""The least number of cards."""

from planner.least_cards import least_bytes, least_cards
from planner.model_profile import LayerProfile, ModelProfile
from planner.optimizers import optimizer_spec

ADAMW = optimizer_spec("adamw", "bfloat16")


def layer(index, num_parameters=100, **costs):
    return LayerProfile(name=f"layer.{index}", num_parameters=num_parameters, **costs)


def test_state_alone_fills_one_card_after_the_other():
    profile = ModelProfile(layers=tuple(map(layer, range(7))))
    assert [least_cards(profile, ADAMW, 1600 * n) for n in (1, 2, 3, 7)] == [7, 4, 3, 1]


def test_a_layer_larger_than_a_card_fits_on_no_number_of_them():
    profile = ModelProfile(layers=(layer(0), layer(1, 101), layer(2)))
    assert least_cards(profile, ADAMW, 1615) is None
    assert least_cards(profile, ADAMW, 1616) == 3


def test_layers_that_are_never_parted_share_a_card():
    profile = ModelProfile(
        layers=tuple(map(layer, range(4))), uncuttable=(("layer.1", "layer.2"),)
    )
    assert least_cards(profile, ADAMW, 3200) == 2
    assert least_cards(profile, ADAMW, 3199) is None


def test_a_tied_parameter_counts_once_on_one_card():
    layers = tuple(map(layer, range(2)))
    assert least_bytes(layers, (), ADAMW) == 3200
    assert least_bytes(layers, (("layer.0", "layer.1"),), ADAMW) == 1600


def test_recompute_and_the_peak_of_the_last_layer_count():
    costs = {
        "activation_bytes": 50,
        "recompute_activation_bytes": 5,
        "backward_peak_bytes": 20,
    }
    layers = (layer(0, 0, **costs), layer(1, 0, **costs))
    # The first keeps 5 while the second has its 50 back and 20 beside them.
    assert least_bytes(layers, (), ADAMW) == 5 + 50 + 20


def test_the_most_favourable_microbatch_size_counts():
    small, large = (layer(0, 0, activation_bytes=size) for size in (10, 20))
    profile = ModelProfile(
        layers=(large,), microbatch_size=2, microbatches={"1": (small,)}
    )
    assert least_cards(profile, ADAMW, 10) == 1
    assert least_cards(profile, ADAMW, 9) is None
