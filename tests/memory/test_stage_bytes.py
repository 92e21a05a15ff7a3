"""A microbatch walked through a stage, by hand."""

from planner.memory import stage_bytes
from planner.model_profile import LayerProfile
from planner.optimizers import optimizer_spec

BLOCK = LayerProfile(
    name="block",
    activation_bytes=100,
    recompute_activation_bytes=10,
    kept_input_bytes=10,
    forward_peak_bytes=130,
    backward_peak_bytes=50,
)
HEAD = LayerProfile(
    name="head", activation_bytes=40, forward_peak_bytes=300, backward_peak_bytes=90
)


def walked(layers, recomputed=None, *, is_first=False, sides=(0, 0)):
    return stage_bytes(
        layers,
        recomputed=recomputed or [False] * len(layers),
        num_parameters=1000,
        optimizer=optimizer_spec("adamw", "bfloat16"),
        input_bytes=sides[0],
        output_bytes=sides[1],
        is_first=is_first,
    )


def test_what_is_always_there():
    stage = walked((BLOCK,), sides=(7, 3))
    assert (stage.weights_bytes, stage.gradients_bytes) == (2000, 2000)
    assert stage.optimizer_bytes == 12000
    assert (stage.input_bytes, stage.output_bytes) == (7, 3)


def test_peaks_are_counted_from_the_start_of_the_action():
    stage = walked((BLOCK, BLOCK, HEAD))
    assert stage.kept_bytes == 240
    # F of the head on top of two blocks; B of the head with nothing freed yet.
    assert stage.forward_peak_bytes == 200 + 300
    assert stage.backward_peak_bytes == 90


def test_what_comes_back_is_part_of_the_peak():
    stage = walked((BLOCK, BLOCK), [True, True])
    assert stage.kept_bytes == 20
    assert stage.backward_peak_bytes == 90 + 50


def test_a_later_layer_is_freed_before_the_peak_of_an_earlier_one():
    small = LayerProfile(name="small", activation_bytes=30, backward_peak_bytes=5)
    # B of the block: 30 less than at the start, and 50.
    assert walked((BLOCK, small)).backward_peak_bytes == 50 - 30


def test_what_is_recomputed_stays_from_i_to_w():
    stage = walked((BLOCK, BLOCK), [True, True])
    assert (stage.kept_bytes, stage.held_bytes) == (20, 200)
    # I of the first block: the second one is back, and so is it.
    assert stage.input_grad_peak_bytes == 90 + 90 + 50
    assert stage.weight_grad_peak_bytes == 50


def test_the_first_stage_does_all_of_b_in_w():
    stage = walked((BLOCK, BLOCK), [True, True], is_first=True)
    assert (stage.kept_bytes, stage.held_bytes) == (20, 20)
    assert stage.input_grad_peak_bytes == 0
    assert stage.weight_grad_peak_bytes == stage.backward_peak_bytes
