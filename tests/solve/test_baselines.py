"""The splits that people use, on profiles where they can be counted."""

from itertools import combinations

import pytest
from solver_profiles import cluster, layers

from planner.model_profile import LayerProfile, ModelProfile
from planner.solve.baselines import baselines, even_cut, smallest_largest
from planner.solve.setting import settings_of
from planner.solve.wishes import Wishes


def setting(profile, cards, **wishes):
    return settings_of(profile, cards, Wishes(schedule="1f1b", **wishes))[0]


def counts(cut):
    return [last - first + 1 for first, last in cut]


def language_model(num_blocks):
    ends = [LayerProfile(name=kind, kind=kind) for kind in ("embedding", "head")]
    blocks = [LayerProfile(name=f"block.{i}") for i in range(num_blocks)]
    return ModelProfile(layers=(ends[0], *blocks, ends[1]))


def test_blocks_are_dealt_out_evenly_with_the_ends_on_top():
    assert counts(even_cut(setting(language_model(30), cluster(2)))) == [16, 16]
    assert counts(even_cut(setting(language_model(10), cluster(4)))) == [4, 3, 2, 3]


def test_embedding_and_head_count_where_blocks_are_too_few():
    assert counts(even_cut(setting(language_model(2), cluster(4)))) == [1, 1, 1, 1]


def test_deepspeed_s_case_has_no_empty_stage():
    profile = ModelProfile(layers=layers([1.0] * 5))
    cut = smallest_largest(setting(profile, cluster(4)), [1.0] * 5)
    assert sorted(counts(cut)) == [1, 1, 1, 2]


@pytest.mark.parametrize("weights", [[5, 1, 1, 1, 1, 7, 2], [1] * 6 + [4]])
def test_the_heaviest_stage_is_as_light_as_can_be(weights):
    profile = ModelProfile(layers=layers([1.0] * 7))
    cut = smallest_largest(setting(profile, cluster(3)), weights)
    heaviest = max(sum(weights[a : b + 1]) for a, b in cut)
    assert heaviest == min(
        max(sum(weights[:a]), sum(weights[a:b]), sum(weights[b:]))
        for a, b in combinations(range(1, 7), 2)
    )


def test_uncuttable_layers_stay_together():
    profile = ModelProfile(
        layers=layers([1.0] * 6), uncuttable=(("layer.1", "layer.4"),)
    )
    assert counts(even_cut(setting(profile, cluster(2)))) in ([5, 1], [1, 5])


def test_recompute_is_all_or_nothing():
    block = {"forward_s": 1.0, "backward_s": 2.0, "activation_bytes": 100}
    rows = tuple(LayerProfile(name=f"layer.{i}", **block) for i in range(6))
    profile = ModelProfile(layers=rows)
    roomy = baselines(setting(profile, cluster(2)))[0]
    tight = baselines(setting(profile, cluster(2, memory_bytes=500)))[0]
    too_small = baselines(setting(profile, cluster(2, memory_bytes=100)))[0]
    assert roomy.fits
    assert tight.fits
    assert not too_small.fits
    # Stages of 3 layers; recompute adds F of two of them to each B.
    assert roomy.step_s == (8 + 1) * 9.0
    assert tight.step_s == (8 + 1) * 11.0
    assert too_small.step_s == roomy.step_s
