"""The recompute front against every subset."""

import random
from itertools import product

import pytest

from planner.memory import layer_levels, levels_of, peak_states
from planner.model_profile import LayerProfile
from planner.schedule.named import schedule_actions
from planner.solve.alone import Boundaries, LevelArrays, needed_bytes
from planner.solve.recompute import Fronts


def random_layers(rng, count, num_kinds):
    kinds = [
        {
            "forward_s": rng.randint(1, 9),
            "activation_bytes": rng.randint(0, 99),
            "recompute_activation_bytes": rng.randint(0, 30),
            "forward_peak_bytes": rng.randint(0, 150),
            "backward_peak_bytes": rng.randint(0, 150),
            "first_backward_peak_bytes": rng.randint(0, 150),
            "num_parameters": rng.randint(0, 20),
        }
        for _ in range(num_kinds)
    ]
    return tuple(LayerProfile(name=str(i), **rng.choice(kinds)) for i in range(count))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("num_microbatches", [1, 3])
def test_the_cheapest_choice_equals_the_cheapest_subset(seed, num_microbatches):
    rng = random.Random(seed)
    layers = random_layers(rng, 7, rng.randint(1, 7))
    states = peak_states(schedule_actions("gpipe", 1, num_microbatches)[0])
    around = Boundaries(
        input_bytes=0, output_bytes=0, gradients_bytes=rng.randint(0, 99), step_bytes=3
    )
    room_bytes = rng.randint(50, 600) * num_microbatches
    best_s = None
    for flags in product([False, True], repeat=5):
        again = (False, *flags, False)
        if needed(states, around, layers, again) <= room_bytes:
            extra_s = sum(x.forward_s for x, r in zip(layers, again, strict=True) if r)
            best_s = extra_s if best_s is None else min(best_s, extra_s)
    choice = Fronts(layers, "auto", 2).cheapest(
        0, 6, lambda levels: needed_bytes(states, levels, around), room_bytes
    )
    assert (choice.extra_s if choice else None) == best_s
    if choice:
        again = [i in choice.layers(0) for i in range(7)]
        assert needed(states, around, layers, again) <= room_bytes


def needed(states, around, layers, again):
    pairs = zip(layers, again, strict=True)
    levels = levels_of(layer_levels(layer, flag, 2) for layer, flag in pairs)
    return int(needed_bytes(states, LevelArrays.of([levels]), around)[0])


def test_equal_layers_make_a_front_as_long_as_the_stage():
    block = {"forward_s": 1.0, "activation_bytes": 100, "backward_peak_bytes": 10}
    layers = tuple(LayerProfile(name=str(i), **block) for i in range(40))
    fronts = Fronts(layers, "auto")
    assert len(fronts.front(1, 38)) <= 39
    assert fronts.exact


def test_the_ends_of_the_model_are_never_recomputed():
    layers = random_layers(random.Random(0), 5, 5)
    (only,) = Fronts(layers, "full").front(0, 4).choices
    assert only.layers(0) == {1, 2, 3}
    (only,) = Fronts(layers, "full").front(2, 4).choices
    assert only.layers(2) == {2, 3}
    assert Fronts(layers, "none").front(0, 4).choices[0].layers(0) == set()


def test_a_thinned_front_says_so_and_keeps_the_leanest():
    # Powers of two: no two subsets are alike, and none is better than another.
    layers = tuple(
        LayerProfile(name=str(i), forward_s=2.0**i, activation_bytes=2**i)
        for i in range(14)
    )
    fronts = Fronts(layers, "auto")
    front = fronts.front(0, 13)
    assert not fronts.exact
    assert len(front) <= 1024
    assert min(choice.levels.kept_bytes for choice in front.choices) == 1 + 2**13
    assert min(choice.extra_s for choice in front.choices) == 0
