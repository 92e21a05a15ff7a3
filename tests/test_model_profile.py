from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import artifact
from planner.errors import ArtifactError, WishError
from planner.model_profile import LayerProfile, ModelProfile, load_profile, sha256_of


def layer(name: str, **costs) -> LayerProfile:
    return LayerProfile(name=name, **costs)


def profile_of(*names: str, **fields) -> ModelProfile:
    return ModelProfile(layers=tuple(layer(name) for name in names), **fields)


sizes = st.integers(0, 10**12)
times = st.floats(0, 1e6)
layers = st.builds(
    LayerProfile,
    name=st.text(min_size=1),
    num_parameters=sizes,
    forward_s=times,
    backward_s=times,
    activation_bytes=sizes,
)


@given(st.lists(layers, min_size=1, max_size=4, unique_by=lambda entry: entry.name))
def test_a_profile_reads_back_as_the_same_value(entries):
    profile = ModelProfile(layers=tuple(entries), seq_len=8)
    text = artifact.to_json(profile)
    assert artifact.from_json(text, ModelProfile, source="x") == profile


def test_a_profile_can_be_written_by_hand():
    text = '{"layers": [{"name": "a", "forward_s": 1}, {"name": "b"}]}'
    profile = artifact.from_json(text, ModelProfile, source="x")
    assert profile.layers[0].forward_s == 1.0
    assert profile.layers[1].activation_bytes == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"layers": []}', "layers is empty"),
        ('{"layers": [{"name": "a"}, {"name": "a"}]}', "the same name twice: a"),
        ('{"layers": [{"name": "a", "forward_s": -1}]}', r"\$\.layers\[0\]\.forward_s"),
        ('{"layers": [{"name": "a", "forward_s": NaN}]}', r"layers\[0\]\.forward_s"),
        ('{"layers": [{"name": "a", "num_tied_parameters": 1}]}', "num_tied_param"),
        ('{"layers": [{"name": "a"}], "ties": [["a", "b"]]}', "ties names 'b'"),
        ('{"layers": [{"name": "a"}], "uncuttable": [["b", "a"]]}', "uncuttable names"),
        ('{"layers": [{"name": "a"}], "dtype": "float16"}', r"\$\.dtype"),
        ('{"layers": [{"name": "a"}], "microbatches": {"0": []}}', "has the size '0'"),
        ('{"layers": [{"name": "a"}], "microbatches": {"2": []}}', "the same layers"),
    ],
)
def test_a_wrong_profile_is_refused_by_field(text, message):
    with pytest.raises(ArtifactError, match=message):
        artifact.from_json(text, ModelProfile, source="x")


def test_costs_are_found_by_microbatch_size():
    slow = (layer("a", forward_s=2.0),)
    profile = replace(profile_of("a"), microbatches={"4": slow})
    assert profile.microbatch_sizes == (1, 4)
    assert profile.layers_at(1) == profile.layers
    assert profile.layers_at(4) == slow
    with pytest.raises(WishError, match="no microbatch size 2, only 1, 4"):
        profile.layers_at(2)


def test_no_cut_is_legal_inside_an_uncuttable_run():
    profile = profile_of("a", "b", "c", "d", uncuttable=(("b", "d"),))
    assert profile.legal_cuts() == (True, False, False)


def test_the_fingerprint_changes_with_the_file(tmp_path):
    path = tmp_path / "p.json"
    artifact.save(profile_of("a"), path)
    before = sha256_of(path)
    assert load_profile(path) == profile_of("a")
    artifact.save(profile_of("b"), path)
    assert sha256_of(path) != before
