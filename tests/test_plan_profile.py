from dataclasses import replace

import pytest
from plan_samples import small_plan

from planner import artifact
from planner.errors import ArtifactError
from planner.model_profile import LayerProfile, ModelInfo, ModelProfile, sha256_of
from planner.plan import ProfileRef
from planner.plan_profile import check_profile

PROFILE = ModelProfile(
    model=ModelInfo(id="tiny"),
    seq_len=8,
    layers=tuple(LayerProfile(name=name) for name in ("embed", "block", "head")),
)


@pytest.fixture
def plan(tmp_path):
    """A plan made from the profile that now lies beside it."""
    path = tmp_path / "profile.json"
    artifact.save(PROFILE, path)
    return small_plan(profile=ProfileRef(path=str(path), sha256=sha256_of(path)))


def test_the_same_profile_is_no_news(plan):
    assert check_profile(plan) is None


def test_a_profile_that_is_gone_is_no_news(plan, tmp_path):
    (tmp_path / "profile.json").unlink()
    assert check_profile(plan) is None


def test_other_costs_are_a_warning(plan, tmp_path):
    slower = replace(PROFILE.layers[1], forward_s=1.0)
    layers = (PROFILE.layers[0], slower, PROFILE.layers[2])
    artifact.save(replace(PROFILE, layers=layers), tmp_path / "profile.json")
    assert "have changed since the plan was made" in check_profile(plan)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seq_len": 16}, "seq_len is 16, the plan has 8"),
        ({"dtype": "float32"}, "dtype is float32, the plan has bfloat16"),
        ({"model": ModelInfo(id="other")}, "model is other, the plan has tiny"),
        ({"attention": "eager"}, "attention is eager, the plan has sdpa"),
        ({"microbatch_size": 4}, "microbatch_size is 4, the plan has 1"),
        ({"layers": PROFILE.layers[:2]}, "number of layers is 2, the plan has 3"),
    ],
)
def test_other_settings_are_refused_by_name(plan, tmp_path, changes, message):
    artifact.save(replace(PROFILE, **changes), tmp_path / "profile.json")
    with pytest.raises(ArtifactError, match=f"{message}; solve again"):
        check_profile(plan)
