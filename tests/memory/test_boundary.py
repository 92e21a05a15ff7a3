"""What counts to a boundary, by hand."""

from planner.memory import receive_buffer_bytes
from planner.memory.boundary import begins_stage, ends_stage
from planner.model_profile import LayerProfile

LAYER = LayerProfile(
    name="layer",
    activation_bytes=100,
    recompute_activation_bytes=12,
    kept_input_bytes=10,
    kept_output_grad_bytes=8,
    output_bytes=8,
    forward_peak_bytes=130,
    backward_peak_bytes=50,
    first_backward_peak_bytes=60,
    input_grad_activation_bytes=160,
    weight_activation_bytes=150,
    weight_grad_activation_bytes=145,
    input_grad_peak_bytes=80,
    weight_grad_peak_bytes=20,
)


def test_buffers_to_receive_into_are_there_for_every_microbatch():
    sizes = {"input_bytes": 5, "output_bytes": 3}
    assert receive_buffer_bytes(num_microbatches=8, **sizes) == 8 * (5 + 3)


def test_the_first_layer_of_a_stage_does_not_keep_its_input():
    first = begins_stage(LAYER, 10)
    assert first.activation_bytes == 90
    assert first.recompute_activation_bytes == 2
    assert first.forward_peak_bytes == 120
    assert (first.weight_activation_bytes, first.weight_grad_activation_bytes) == (
        140,
        140,  # no more than there is
    )
    assert first.backward_peak_bytes == LAYER.backward_peak_bytes


def test_the_last_layer_of_a_stage_does_not_bring_its_outputs_gradient():
    last = ends_stage(LAYER, 8)
    assert (last.backward_peak_bytes, last.first_backward_peak_bytes) == (42, 52)
    assert (last.input_grad_peak_bytes, last.weight_activation_bytes) == (72, 142)
    assert last.activation_bytes == LAYER.activation_bytes


def test_a_profile_that_does_not_know_never_goes_below_nothing():
    bare = LayerProfile(name="bare")
    assert ends_stage(begins_stage(bare, 10), 10) == bare
