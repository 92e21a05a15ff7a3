"""What is drawn at random, again and anew."""

import random

import torch

from planner.runtime.random_states import draw_anew, random_states, set_random_states

CPU = torch.device("cpu")


def drawn():
    return random.random(), float(torch.rand(()))


def drawn_after(*seed):
    draw_anew(*seed)
    return drawn()


def test_states_bring_back_what_would_have_been_drawn():
    states = random_states(CPU)
    expected = drawn()
    set_random_states(states, CPU)
    assert drawn() == expected


def test_a_seed_always_draws_the_same():
    assert drawn_after(7) == drawn_after(7)
    assert drawn_after(7, 100) == drawn_after(7, 100)


def test_what_was_drawn_for_other_ranks_or_before_does_not_come_again():
    seeds = [(seed, step) for seed in range(4) for step in (0, 1, 2, 100)]
    found = [drawn_after(*seed) for seed in seeds]
    for numbers in zip(*found, strict=True):
        assert len(set(numbers)) == len(seeds)
