"""The rules by which people divide layers, on models where they can be counted."""

import dataclasses
import random
from itertools import combinations

import pytest
from baseline_settings import counts, language_model, setting
from solver_profiles import cluster, layers

from planner.cards import Link
from planner.model_profile import ModelProfile
from planner.solve.baselines import rules


@pytest.mark.parametrize(
    ("num_blocks", "num_cards", "expected"),
    [(30, 2, [16, 16]), (10, 4, [4, 3, 2, 3]), (2, 4, [1, 1, 1, 1])],
)
def test_blocks_are_dealt_out_evenly_with_the_ends_on_top(
    num_blocks, num_cards, expected
):
    own = setting(language_model(num_blocks), cluster(num_cards))
    assert counts(rules.even_layers(own)) == expected


@pytest.mark.parametrize(
    ("num_blocks", "num_cards", "expected"),
    # 27 blocks on 4 cards is the example of a guide to torchtitan: 7, 7, 7, 6 blocks.
    [(30, 4, [8, 8, 8, 8]), (27, 4, [8, 7, 7, 7]), (4, 4, [2, 2, 1, 1])],
)
def test_embedding_and_head_count_as_a_block_each(num_blocks, num_cards, expected):
    own = setting(language_model(num_blocks), cluster(num_cards))
    assert counts(rules.less_at_the_ends(own)) == expected


def test_parameters_are_balanced_whatever_the_layers_take():
    own = setting(language_model(6, parameters=(40, 10, 40)), cluster(2))
    assert counts(rules.equal_parameters(own)) == [4, 4]
    own = setting(language_model(6, parameters=(60, 10, 0)), cluster(2))
    assert counts(rules.equal_parameters(own)) == [1, 7]


def test_times_are_balanced_whatever_the_schedule_needs():
    own = setting(ModelProfile(layers=layers([1, 1, 1, 1, 4])), cluster(2))
    assert counts(rules.equal_time(own)) == [4, 1]


def test_deepspeed_s_case_has_no_empty_stage():
    own = setting(ModelProfile(layers=layers([1.0] * 5)), cluster(4))
    assert sorted(counts(rules.equal_time(own))) == [1, 1, 1, 2]


def test_a_slow_transfer_is_a_bottleneck():
    rows = layers([1.0] * 4)
    middle = dataclasses.replace(rows[1], output_bytes=10)
    rows = (rows[0], middle, *rows[2:])
    link = Link(name="1 byte a second", bandwidth=1.0, latency_s=0.0)
    own = setting(ModelProfile(layers=rows), cluster(2, link=link))
    # Both transfers after layer 1 take 20 s, the longer stage 9 s.
    assert counts(rules.equal_time(own)) == [2, 2]
    assert counts(rules.least_bottleneck(own)) == [3, 1]


@pytest.mark.parametrize("seed", range(5))
def test_no_cut_has_a_smaller_bottleneck(seed):
    rng = random.Random(seed)
    rows = tuple(
        dataclasses.replace(row, output_bytes=rng.randint(0, 20))
        for row in layers([rng.randint(1, 6) for _ in range(7)])
    )
    link = Link(name="1 byte a second", bandwidth=1.0, latency_s=0.0)
    own = setting(ModelProfile(layers=rows), cluster(3, link=link))

    def bottleneck_s(ends):
        begins = [0, *ends]
        stages = [rows[a:b] for a, b in zip(begins, [*ends, 7], strict=True)]
        work_s = [sum(x.forward_s + x.backward_s for x in stage) for stage in stages]
        return max(*work_s, *(2 * rows[end - 1].output_bytes for end in ends))

    found = [first for first, _ in rules.least_bottleneck(own)[1:]]
    assert bottleneck_s(found) == min(map(bottleneck_s, combinations(range(1, 7), 2)))


def test_uncuttable_layers_stay_together():
    profile = ModelProfile(
        layers=layers([1.0] * 6, num_parameters=1),
        uncuttable=(("layer.1", "layer.4"),),
    )
    own = setting(profile, cluster(2))
    for rule in (rules.even_layers, rules.less_at_the_ends, rules.equal_time):
        assert counts(rule(own)) in ([5, 1], [1, 5])
    assert rules.device_map(own) == {0: (0, 0), 1: (1, 5)}


def test_the_device_map_fills_cards_with_weights():
    profile = language_model(6, parameters=(20, 10, 20), dtype="float32")
    # Of 400 bytes a card takes 200 + 1.25 * 40; the first leaves room for 80.
    own = setting(profile, cluster(2))
    assert rules.device_map(own) == {0: (0, 2), 1: (3, 7)}


def test_the_device_map_passes_a_card_by_that_a_large_embedding_leaves_no_room_on():
    own = setting(language_model(6, parameters=(1000, 10, 20)), cluster(2))
    assert rules.device_map(own) == {1: (0, 7)}


def test_the_device_map_stops_at_the_memory_of_a_card():
    profile = language_model(6, parameters=(20, 10, 20), dtype="float32")
    own = setting(profile, cluster(2, memory_bytes=170))
    # 170 bytes less 80 for the largest layer: the embedding alone.
    assert rules.device_map(own) == {0: (0, 0), 1: (1, 7)}


def test_the_device_map_counts_tied_weights_once():
    profile = language_model(
        6, parameters=(20, 10, 20), dtype="float32", ties=(("embedding", "head"),)
    )
    # Of 320 bytes 160 + 50 - 80: the embedding and one block.
    assert rules.device_map(setting(profile, cluster(2))) == {0: (0, 1), 1: (2, 7)}
