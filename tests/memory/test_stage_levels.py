"""The walks through a stage, done by hand."""

from dataclasses import replace

from planner.memory.stage_levels import StageLevels, stage_levels, step_peak_bytes
from planner.model_profile import LayerProfile
from planner.optimizers import optimizer_spec

BLOCK = LayerProfile(
    name="block",
    num_parameters=5,
    largest_parameter=4,
    activation_bytes=100,
    recompute_activation_bytes=10,
    forward_peak_bytes=130,
    backward_peak_bytes=50,
    first_backward_peak_bytes=60,
    input_grad_activation_bytes=160,
    weight_activation_bytes=160,
    weight_grad_activation_bytes=70,
    input_grad_peak_bytes=80,
    weight_grad_peak_bytes=20,
)
HEAD = LayerProfile(
    name="head",
    num_parameters=20,
    largest_parameter=20,
    activation_bytes=40,
    recompute_activation_bytes=40,
    forward_peak_bytes=90,
    backward_peak_bytes=60,
    first_backward_peak_bytes=65,
    input_grad_activation_bytes=75,
    weight_activation_bytes=45,
    input_grad_peak_bytes=70,
    weight_grad_peak_bytes=30,
)
STAGE = (BLOCK, BLOCK, HEAD)


def levels_of(layers, *recomputed, is_first=False):
    return stage_levels(
        layers,
        recomputed=recomputed or [False] * len(layers),
        gradient_bytes=4,
        is_first=is_first,
    )


def test_every_action_of_a_stage_with_a_head():
    assert levels_of(STAGE) == StageLevels(
        kept_bytes=100 + 100 + 40,
        weight_kept_bytes=160 + 160 + 45,
        forward_peak_bytes=100 + 130 + 60,  # of the head: 200 + 90
        backward_peak_bytes=240 + 60,  # of the head
        # Of the upper block: the gradients of the head are there by now.
        first_backward_peak_bytes=100 + 100 + 60 + 4 * 20,
        input_grad_peak_bytes=100 + 80 + 160 + 75,  # of the lowest block
        weight_grad_peak_bytes=160 + 160 + 45 + 20,  # of the lowest block
        first_weight_grad_peak_bytes=160 + 160 + 45 + 20 + 4 * 30,
    )


def test_a_head_with_a_large_weight_has_its_w_when_the_blocks_are_done():
    head = replace(HEAD, weight_grad_peak_bytes=500)
    assert levels_of((BLOCK, BLOCK, head)).weight_grad_peak_bytes == 70 + 70 + 45 + 500


def test_recomputed_layers_come_back_one_by_one_and_stay_until_w():
    kept, recomputed = levels_of(STAGE), levels_of(STAGE, True, True, False)
    assert recomputed.kept_bytes == 10 + 10 + 40
    assert recomputed.weight_kept_bytes == kept.weight_kept_bytes
    # The input, which recompute keeps, is there besides what comes back.
    assert recomputed.backward_peak_bytes == 10 + 10 + 100 + 50
    assert recomputed.input_grad_peak_bytes == 10 + 100 + 80 + 160 + 75
    assert levels_of(STAGE, False, True, False).input_grad_peak_bytes == 415


def test_on_the_first_stage_i_does_nothing_and_w_is_all_of_b():
    levels = levels_of(STAGE, is_first=True)
    assert levels.weight_kept_bytes == levels.kept_bytes
    assert levels.input_grad_peak_bytes == levels.kept_bytes
    assert levels.weight_grad_peak_bytes == levels.backward_peak_bytes


def test_what_a_profile_does_not_know_of_i_and_w_counts_as_b():
    plain = LayerProfile(
        name="plain", num_parameters=1, activation_bytes=100, backward_peak_bytes=50
    )
    assert levels_of((plain, plain)) == StageLevels(
        kept_bytes=200,
        weight_kept_bytes=200,
        forward_peak_bytes=200,
        backward_peak_bytes=250,
        first_backward_peak_bytes=250,
        input_grad_peak_bytes=250,
        weight_grad_peak_bytes=250,
        first_weight_grad_peak_bytes=250 + 4 * 2,
    )


def test_a_step_in_half_precision_needs_one_gradient_in_full():
    full, half = (optimizer_spec("adamw", dtype) for dtype in ("float32", "bfloat16"))
    assert step_peak_bytes((HEAD, BLOCK), half) == 4 * 20
    # The gradients of two blocks are gone when it is the head's turn.
    assert step_peak_bytes(STAGE, half) == 4 * 20 - 2 * (5 + 5)
    assert step_peak_bytes(STAGE, full) == 0
