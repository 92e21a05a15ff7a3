"""A module of the user's own is cut like a model."""

import copy

import pytest
import torch

from planner.chain.inputs import make_rows
from planner.chain.layers import find_chain
from planner.chain.parity import run_split
from planner.chain.source import build_model, open_source
from planner.chain.stages import StageRecipe, build_stage
from planner.errors import ModelError

CPU = torch.device("cpu")

CASES = {
    "Images": ("layer1", "layer2", "layer3", "layer4"),
    "Regression": ("layers.0", "layers.1", "layers.2", "head"),
    "tokens": ("0", "1", "2", "3", "4"),
}


def chain_of(name):
    source = open_source(f"own_modules:{name}")
    return source, find_chain(source, attention="auto", shape=(4, 6))


@pytest.mark.parametrize(("name", "layers"), CASES.items())
def test_its_layers_are_its_children(name, layers):
    source, chain = chain_of(name)
    assert chain.names == layers
    assert chain.cuts == tuple(range(len(layers) - 1))
    module = build_model(source, dtype=torch.float32, attention="auto")
    found = {n for layer in chain.layers for n in layer.parameters}
    assert found == {n for n, _ in module.named_parameters()}


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradients_are_those_of_the_whole(name):
    source, chain = chain_of(name)
    rows = make_rows(source, (4, 6), dtype=torch.float32, device=CPU)
    last = len(chain.layers) - 1
    whole = [stage_of(source, chain, 0, last)]
    expected = run_split(whole, rows)
    wanted = gradients(whole)
    assert all(x.any() for x in wanted.values())
    for ends in [*([cut] for cut in chain.cuts), list(chain.cuts)]:
        starts = [0, *(end + 1 for end in ends)]
        stages = [
            stage_of(source, chain, a, b)
            for a, b in zip(starts, [*ends, last], strict=True)
        ]
        torch.testing.assert_close(run_split(stages, rows), expected)
        found = gradients(stages)
        assert found.keys() == wanted.keys()
        for key, value in found.items():
            torch.testing.assert_close(value, wanted[key])


def stage_of(source, chain, first, last):
    recipe = StageRecipe(first=first, last=last, dtype="float32", attention="auto")
    return build_stage(source, chain, recipe, device=CPU, seed=0)


def gradients(stages):
    owned = [stage.owned_parameters() for stage in stages]
    return {n: copy.copy(p.grad) for some in owned for n, p in some.items()}


def test_there_is_no_cut_under_a_skip_connection():
    _, chain = chain_of("Skip")
    assert chain.names == ("embed", "left", "right", "head")
    assert chain.cuts == (0, 2)


def test_the_whole_stage_computes_what_the_module_computes():
    source, chain = chain_of("Images")
    rows = make_rows(source, (4, 1), dtype=torch.float32, device=CPU)
    stage = stage_of(source, chain, 0, 3)
    module = build_model(source, dtype=torch.float32, attention="auto")
    output = module(images=rows["images"]).logits
    expected = 4 * torch.nn.functional.cross_entropy(output, rows["labels"])
    torch.testing.assert_close(run_split([stage], rows), expected.detach())


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Parallel", "branches at right, which is not handed what left left"),
        ("NoLoss", r"give it a method loss\(output, labels\)"),
        ("BadRows", "must return a dictionary of tensors with the same number"),
        ("fails", "own_modules:fails fails: RuntimeError: no luck"),
        ("number", "returns a int, not a torch.nn.Module"),
        ("floats_only", r"has no embedding.*sample_inputs\(\)"),
        ("frozen", "returns a module without parameters"),
        ("absent", "own_modules has no function absent"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(name, reason):
    with pytest.raises(ModelError, match=reason):
        chain_of(name)


def test_a_module_that_is_not_there_is_named():
    with pytest.raises(ModelError, match="no Python module nowhere"):
        open_source("nowhere:make")


def test_an_import_that_fails_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "needs_more.py").write_text("import not_installed_at_all")
    (tmp_path / "is_broken.py").write_text("1 / 0")
    with pytest.raises(ModelError, match="imports not_installed_at_all, which is not"):
        open_source("needs_more:make")
    with pytest.raises(ModelError, match="is_broken cannot be imported: ZeroDiv"):
        open_source("is_broken:make")
