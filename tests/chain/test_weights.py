"""A stage's parameters: from the checkpoint, or drawn under every cut alike."""

import json
import shutil
from itertools import pairwise

import pytest
import torch
from architectures import ARCHITECTURES
from chain_tools import make_stage, whole_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from planner.chain import weights
from planner.chain.source import open_source
from planner.chain.weights import has_weights, saved_tensors
from planner.errors import ModelError

NAMES = ["llama-tied", "llama-untied", "mixtral", "half-sparse", "gpt2", "falcon"]
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
CUTS = [[0, 4], [0, 1, 3, 4]]

some_architectures = pytest.mark.parametrize("name", NAMES)


def stages_of(chain, folder, bounds, seed=None):
    source = open_source(str(folder))
    return [
        make_stage(source, chain, first, end - 1, seed=seed)
        for first, end in pairwise(bounds)
    ]


def tensors_of(stages):
    """Parameter name to tensor; copies of a tied one must be equal."""
    found = {}
    for stage in stages:
        for name, parameter in stage.owned_parameters().items():
            assert torch.equal(found.setdefault(name, parameter), parameter)
    return found


def assert_equal_tensors(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


@pytest.fixture
def opened(monkeypatch):
    """The keys that a stage reads, by file."""
    keys = {}

    class Spy:
        def __init__(self, path, framework):
            self._path, self._file = path, safe_open(path, framework=framework)

        def __enter__(self):
            self._file.__enter__()
            return self

        def __exit__(self, *error):
            return self._file.__exit__(*error)

        def keys(self):
            return self._file.keys()

        def get_slice(self, key):
            keys.setdefault(self._path.name, []).append(key)
            return self._file.get_slice(key)

    safe_open = weights.safe_open
    monkeypatch.setattr(weights, "safe_open", Spy)
    return keys


@pytest.fixture
def sharded(folders, tmp_path):
    """The tied Llama, one file a layer."""
    model = whole_model(folders["llama-tied"])
    model.save_pretrained(tmp_path, max_shard_size="40kB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    return tmp_path


# --- loading ------------------------------------------------------------------


@pytest.mark.parametrize("bounds", CUTS, ids=str)
@some_architectures
def test_stages_load_what_from_pretrained_loads(chains, folders, name, bounds):
    stages = stages_of(chains[name], folders[name], bounds)
    expected = dict(whole_model(folders[name]).named_parameters())
    assert_equal_tensors(tensors_of(stages), expected)


def test_weights_in_several_files_load_too(chains, sharded):
    stages = stages_of(chains["llama-tied"], sharded, [0, 2, 4])
    expected = dict(whole_model(sharded).named_parameters())
    assert_equal_tensors(tensors_of(stages), expected)


def test_a_stage_opens_its_own_tensors_only(chains, folders, opened):
    stages_of(chains["llama-untied"], folders["llama-untied"], [2, 3])
    saved = load_file(folders["llama-untied"] / SINGLE)
    own = {key for key in saved if key.startswith("model.layers.1.")}
    assert set(opened[SINGLE]) == own


def test_a_stage_opens_its_own_files_only(chains, sharded, opened):
    index = json.loads((sharded / INDEX).read_text())
    stages_of(chains["llama-tied"], sharded, [2, 3])
    own = {k: f for k, f in index["weight_map"].items() if "layers.1." in k}
    assert {key: name for name, keys in opened.items() for key in keys} == own
    assert set(opened) < set(index["weight_map"].values())


@pytest.mark.transformers5
def test_experts_stored_one_by_one_become_one_tensor(chains, folders, opened):
    (stage,) = stages_of(chains["mixtral"], folders["mixtral"], [1, 2])
    own = opened[SINGLE]
    assert len([key for key in own if ".experts." in key]) == 4 * 3
    assert all(".layers.0." in key for key in own)
    gates = [p for n, p in stage.owned_parameters().items() if "experts.gate_up" in n]
    assert [p.shape for p in gates] == [(4, 2 * 64, 32)]


def test_weights_are_converted_to_the_dtype_of_the_plan(chains, folders, tmp_path):
    folder = shutil.copytree(folders["llama-tied"], tmp_path / "half")
    state = load_file(folder / SINGLE)
    halves = {key: value.bfloat16() for key, value in state.items()}
    save_file(halves, folder / SINGLE, metadata={"format": "pt"})
    (stage,) = stages_of(chains["llama-tied"], folder, [1, 2])
    for name, parameter in stage.owned_parameters().items():
        assert parameter.dtype == torch.float32
        assert torch.equal(parameter, halves[name].float())


@pytest.fixture
def changed(folders, tmp_path):
    """A copy of a folder, the tensors of its checkpoint changed by a function."""

    def make(name, change):
        folder = shutil.copytree(folders[name], tmp_path / "changed")
        state = change(load_file(folder / SINGLE))
        save_file(state, folder / SINGLE, metadata={"format": "pt"})
        return folder

    return make


def test_a_checkpoint_without_the_prefix_of_the_model_loads_too(chains, changed):
    # The hub's own GPT-2 says h.0 where the model says transformer.h.0.
    folder = changed(
        "gpt2", lambda t: {k.removeprefix("transformer."): v for k, v in t.items()}
    )
    stored = load_file(folder / SINGLE)
    assert "h.0.ln_1.weight" in stored
    found = tensors_of(stages_of(chains["gpt2"], folder, [0, 2, 4]))
    assert_equal_tensors(
        {k.removeprefix("transformer."): v for k, v in found.items()}, stored
    )


def test_tensors_that_the_model_does_not_have_are_left_alone(chains, changed):
    key = "model.layers.0.self_attn.rotary_emb.inv_freq"
    folder = changed("llama-tied", lambda t: t | {key: torch.full((4,), 7.0)})
    (stage,) = stages_of(chains["llama-tied"], folder, [0, 4])
    assert not (stage.model.model.rotary_emb.inv_freq == 7).any()


@pytest.mark.parametrize(
    ("name", "missing", "layer"),
    [
        ("llama-untied", "lm_head.weight", 3),
        ("llama-untied", "model.layers.1.mlp.up_proj.weight", 2),
        ("llama-untied", "model.norm.weight", 3),  # a constructor makes it ones
        ("llama-tied", "model.embed_tokens.weight", 3),  # here the head needs it
        ("gpt2", "transformer.h.0.attn.c_attn.bias", 1),
    ],
)
def test_a_missing_tensor_is_named_by_the_stage_that_needs_it(
    chains, changed, name, missing, layer
):
    folder = changed(name, lambda t: {k: v for k, v in t.items() if k != missing})
    with pytest.raises(ModelError, match=rf"not hold 1 parameters .*such as {missing}"):
        stages_of(chains[name], folder, [layer, layer + 1])
    other = 2 if layer == 1 else 1
    stages_of(chains[name], folder, [other, other + 1])


def test_a_tensor_of_another_shape_is_named(chains, changed):
    folder = changed(
        "llama-untied", lambda t: t | {"lm_head.weight": torch.ones(9, 32)}
    )
    with pytest.raises(ModelError, match=r"such as lm_head\.weight"):
        stages_of(chains["llama-untied"], folder, [3, 4])


def test_a_file_that_was_cut_short_is_damaged(chains, folders, tmp_path):
    folder = shutil.copytree(folders["gpt2"], tmp_path / "short")
    (folder / SINGLE).write_bytes((folder / SINGLE).read_bytes()[:20_000])
    with pytest.raises(ModelError, match=r"are damaged \(.*\); fetch them again"):
        stages_of(chains["gpt2"], folder, [0, 4])


@pytest.mark.parametrize("text", ["{", "{}", "[]"])
def test_an_index_that_is_none_is_named(chains, sharded, text):
    (sharded / INDEX).write_text(text)
    with pytest.raises(ModelError, match=f"{INDEX} does not say in which file"):
        stages_of(chains["llama-tied"], sharded, [0, 4])


def test_a_missing_file_is_named(chains, sharded):
    (sharded / "model-00002-of-00003.safetensors").unlink(missing_ok=True)
    lost = sorted(sharded.glob("*.safetensors"))[1]
    lost.unlink()
    with pytest.raises(ModelError, match=r"lacks the weight file model-.*its index"):
        stages_of(chains["llama-tied"], sharded, [0, 4])


def test_a_checkpoint_without_safetensors_is_refused(chains, folders, tmp_path):
    folder = shutil.copytree(folders["gpt2"], tmp_path / "old")
    assert has_weights(open_source(str(folder)))
    (folder / SINGLE).rename(folder / "pytorch_model.bin")
    assert not has_weights(open_source(str(folder)))
    with pytest.raises(ModelError, match=r"no weights in safetensors.*--init random"):
        stages_of(chains["gpt2"], folder, [0, 4])


# --- drawing ------------------------------------------------------------------


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_random_weights_do_not_depend_on_the_cut(chains, folders, name):
    whole, cut = (
        tensors_of(stages_of(chains[name], folders[name], bounds, seed=7))
        for bounds in CUTS
    )
    assert_equal_tensors(cut, whole)


def test_another_seed_draws_other_weights(chains, folders):
    one, same, other = (
        tensors_of(stages_of(chains["gpt2"], folders["gpt2"], [1, 2], seed=seed))
        for seed in (1, 1, 2)
    )
    key = "transformer.h.0.mlp.c_fc.weight"
    assert torch.equal(one[key], same[key])
    assert not torch.equal(one[key], other[key])


def test_equal_layers_draw_different_weights(chains, folders):
    (stage,) = stages_of(chains["gpt2"], folders["gpt2"], [1, 3], seed=1)
    first, second = (
        stage.owned_parameters()[f"transformer.h.{i}.mlp.c_fc.weight"] for i in (0, 1)
    )
    assert not torch.equal(first, second)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_random_weights_are_spread_as_the_model_would_spread_them(
    chains, folders, name
):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(ARCHITECTURES[name])
    expected = dict(model.named_parameters())
    drawn = tensors_of(stages_of(chains[name], folders[name], [0, 4], seed=3))
    assert drawn.keys() == expected.keys()
    # Loose, for tensors of 32 numbers; but ones and zeros must be just that.
    for key, tensor in drawn.items():
        mean, spread = expected[key].mean().item(), expected[key].std().item()
        assert tensor.mean().item() == pytest.approx(mean, abs=spread + 1e-6), key
        assert tensor.std().item() == pytest.approx(spread, rel=0.6, abs=1e-6), key


def test_drawing_leaves_the_random_numbers_of_others_alone(chains, folders):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    stages_of(chains["gpt2"], folders["gpt2"], [1, 2], seed=1)
    assert torch.equal(torch.rand(3), expected)


# --- saving -------------------------------------------------------------------


@pytest.mark.parametrize("bounds", CUTS, ids=str)
@some_architectures
def test_stages_save_what_save_pretrained_saves(chains, folders, name, bounds):
    expected = load_file(folders[name] / SINGLE)
    found = {}
    for stage in stages_of(chains[name], folders[name], bounds):
        new = {n: p for n, p in stage.owned_parameters().items() if n not in found}
        tensors = saved_tensors(stage, {id(p) for p in new.values()})
        assert not found.keys() & tensors.keys()
        found |= tensors
    assert_equal_tensors(found, expected)
