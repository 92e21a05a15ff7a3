"""A microbatch walked through a run of layers, by hand."""

from hypothesis import given
from hypothesis import strategies as st
from random_orders import sizes

from planner.memory import Levels, layer_levels, levels_of
from planner.model_profile import LayerProfile

BLOCK = LayerProfile(
    name="block",
    num_parameters=5,
    activation_bytes=100,
    recompute_activation_bytes=10,
    kept_input_bytes=4,
    output_bytes=7,
    forward_peak_bytes=130,
    backward_peak_bytes=50,
    first_backward_peak_bytes=60,
    input_grad_activation_bytes=160,
    input_grad_peak_bytes=80,
)
HEAD = LayerProfile(
    name="head",
    num_parameters=20,
    activation_bytes=40,
    forward_peak_bytes=300,
    backward_peak_bytes=90,
    input_grad_activation_bytes=75,
    input_grad_peak_bytes=70,
)


def walked(layers, *recomputed):
    pairs = zip(layers, recomputed or [False] * len(layers), strict=True)
    return levels_of(layer_levels(layer, again, 4) for layer, again in pairs)


def test_the_walk_of_one_microbatch():
    assert walked((BLOCK, BLOCK, HEAD)) == Levels(
        kept_bytes=240,
        gradients_bytes=4 * 30,
        forward_bytes=200 + 300,  # of the head, on top of two blocks
        backward_bytes=240 + 90,  # of the head
        # Of the upper block, when the gradients of the head are there.
        first_backward_bytes=200 + 60 + 4 * 20,
        input_grad_kept_bytes=160 + 160 + 75,
        input_grad_bytes=100 + 80 + 160 + 75,  # of the lowest block
    )


def test_a_recomputed_layer_comes_back_in_backward():
    # Kept 10, with 4 of the 100 that come back among them.
    assert walked((BLOCK,), True)[:4] == (10, 20, 130, 100 + 6 + 50)
    # The second of two: 10 below it.
    assert walked((BLOCK, BLOCK), True, True)[:4] == (20, 40, 140, 10 + 156)


def test_a_layer_without_peaks_reaches_what_it_keeps():
    plain = LayerProfile(name="plain", activation_bytes=100)
    assert walked((plain, plain)) == Levels(200, 0, 200, 200, 200, 0, 200)


layers_with_levels = st.builds(
    layer_levels,
    st.builds(
        LayerProfile,
        name=st.just("layer"),
        num_parameters=sizes,
        activation_bytes=sizes,
        recompute_activation_bytes=sizes,
        forward_peak_bytes=sizes,
        backward_peak_bytes=sizes,
        first_backward_peak_bytes=sizes,
        input_grad_activation_bytes=sizes,
        input_grad_peak_bytes=sizes,
    ),
    st.booleans(),
    st.integers(0, 4),
)


@given(st.lists(layers_with_levels, max_size=6), st.integers(0, 6))
def test_a_run_is_as_high_as_its_parts_wherever_it_is_parted(layers, place):
    both = levels_of(layers[:place]).followed_by(levels_of(layers[place:]))
    assert both == levels_of(layers)
