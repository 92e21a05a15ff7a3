"""Memory of a stage against the walk done by hand."""

from planner.memory import activation_level, stage_memory
from planner.model_profile import LayerProfile
from planner.optimizers import optimizer_spec

BLOCK = LayerProfile(
    name="block",
    num_parameters=1000,
    activation_bytes=100,
    recompute_activation_bytes=10,
    output_bytes=7,
    forward_peak_bytes=130,
    backward_peak_bytes=50,
)
HEAD = LayerProfile(
    name="head", activation_bytes=40, forward_peak_bytes=300, backward_peak_bytes=90
)


def test_the_walk_of_one_microbatch():
    # F of the head starts on top of two blocks: 2 * 100 + 300.
    assert activation_level((BLOCK, BLOCK, HEAD), (False,) * 3) == (240, 500)


def test_a_recomputed_layer_comes_back_in_backward():
    # Kept 10, F peak 130, B peak 10 + 90 that come back + 50.
    assert activation_level((BLOCK,), (True,)) == (10, 150)
    # The second of two: 10 below it.
    assert activation_level((BLOCK, BLOCK), (True, True)) == (20, 160)


def test_a_layer_without_peaks_reaches_what_it_keeps():
    plain = LayerProfile(name="plain", activation_bytes=100)
    assert activation_level((plain, plain), (False, False)) == (200, 200)


def test_every_item_of_a_stage():
    memory = stage_memory(
        (BLOCK, HEAD),
        recomputed=(False, False),
        num_in_flight=3,
        num_parameters=1000,
        optimizer=optimizer_spec("adamw", "bfloat16"),
        num_microbatches=4,
        input_bytes=7,
        output_bytes=0,
        reserve_bytes=99,
    )
    # Levels of the walk: 100 + 300 in F of the head; 140 kept by each in flight.
    assert memory.items() == {
        "weights": 2000,
        "gradients": 2000,
        "optimizer": 12000,
        "activations": 3 * 140,
        "workspace": 400 - 140,
        "communication": 2 * 4 * 7,
        "overhead": 99,
    }
    assert memory.total == sum(memory.items().values())
