"""A plan that does not belong to a profile, or cannot be run, is refused."""

import dataclasses

import pytest
from solver_profiles import REF, cluster, layers

from planner.errors import ArtifactError
from planner.model_profile import ModelProfile
from planner.solve import Wishes, best_plan, check_plan

PROFILE = ModelProfile(
    layers=layers([1.0] * 4, num_parameters=10), uncuttable=(("layer.0", "layer.1"),)
)
PLAN = best_plan(PROFILE, cluster(2, memory_bytes=4000), Wishes(), profile_ref=REF)


def with_stages(*stages):
    return dataclasses.replace(PLAN, stages=stages)


def renamed(stage, name):
    return dataclasses.replace(stage, layers=(name, *stage.layers[1:]))


def with_actions(actions):
    schedule = dataclasses.replace(PLAN.schedule, actions=actions)
    return dataclasses.replace(PLAN, schedule=schedule)


def test_the_solver_s_own_plan_passes():
    check_plan(PLAN, PROFILE)


def moved():
    """Layer 1 on the second stage, away from layer 0."""
    one, two = PLAN.stages
    one = dataclasses.replace(one, last_layer=0, layers=one.layers[:1])
    two = dataclasses.replace(two, first_layer=1, layers=("layer.1", *two.layers))
    return with_stages(one, two)


def shrunk():
    one, two = PLAN.stages
    predicted = dataclasses.replace(one.predicted, capacity_bytes=100)
    return with_stages(dataclasses.replace(one, predicted=predicted), two)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (with_stages(renamed(PLAN.stages[0], "x"), PLAN.stages[1]), "layer 0 is 'x'"),
        (with_stages(PLAN.stages[0]), "the plan has 2 layers but the model 4"),
        (dataclasses.replace(PLAN, dtype="float32"), "dtype float32"),
        (dataclasses.replace(PLAN, seq_len=77), "seq_len 77"),
        (moved(), "parts 'layer.0' from 'layer.1'"),
        (shrunk(), "stage 0 needs 320 B but gpu:0 has 100 B"),
        (with_actions((("0F0",), ("1F0",))), "never does B of microbatch 0"),
        (with_actions((("0F0", "0X0"), ("1F0",))), "'0X0' is not an action"),
    ],
)
def test_each_mismatch_has_its_words(plan, words):
    with pytest.raises(ArtifactError) as caught:
        check_plan(plan, PROFILE)
    assert words in str(caught.value)
