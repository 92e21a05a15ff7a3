"""A model without its weights is the model in all but its weights."""

import pytest
import torch
from architectures import ARCHITECTURES
from model_folders import llama_config

from planner.chain.skeleton import build_skeleton
from planner.chain.source import ModelSource, build_model


def both(config, dtype=torch.float32):
    """A skeleton and the model as its code makes it."""
    source = ModelSource(id="tiny", config=config)
    settings = {"dtype": dtype, "attention": "auto"}
    return build_skeleton(source, **settings), build_model(source, **settings)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_buffers_are_real_and_those_of_the_model(name):
    skeleton, model = both(ARCHITECTURES[name])
    buffers, expected = dict(skeleton.named_buffers()), dict(model.named_buffers())
    assert buffers.keys() == expected.keys()
    for key, buffer in buffers.items():
        assert torch.equal(buffer, expected[key]), key


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_parameters_have_the_shapes_and_ties_of_the_model(name):
    skeleton, model = both(ARCHITECTURES[name], torch.bfloat16)

    def described(model):
        parameters = dict(model.named_parameters(remove_duplicate=False))
        first = {id(p): key for key, p in reversed(parameters.items())}
        return {k: (p.shape, p.dtype, first[id(p)]) for k, p in parameters.items()}

    assert described(skeleton) == described(model)


def test_rotary_frequencies_are_not_left_to_chance():
    skeleton, _ = both(llama_config(rope_theta=500.0))
    frequencies = skeleton.get_buffer("model.rotary_emb.inv_freq")
    expected = 500.0 ** -(torch.arange(0, 8, 2) / 8)
    torch.testing.assert_close(frequencies, expected)


def test_no_large_parameter_has_memory():
    config = llama_config(hidden_size=512, intermediate_size=1024)
    skeleton, _ = both(config)
    large = [p for p in skeleton.parameters() if p.numel() > 2**16]
    assert len(large) == 6 * 7 + 1
    assert all(p.is_meta for p in large)


class Custom(torch.nn.Module):
    """Parameters that a constructor fills, a small one and a large one."""

    def __init__(self, config):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.full((4,), 0.5))
        self.table = torch.nn.Parameter(torch.ones(300, 300))


def test_a_small_parameter_keeps_what_its_constructor_filled_in(monkeypatch):
    monkeypatch.setattr(
        "planner.chain.skeleton.build_model", lambda source, **_: Custom(source.config)
    )
    source = ModelSource(id="mine", config=None)
    skeleton = build_skeleton(source, dtype=torch.float32, attention="auto")
    assert skeleton.scale.tolist() == [0.5] * 4
    assert skeleton.table.is_meta


def test_afterwards_modules_have_memory_again():
    both(llama_config())
    assert not torch.nn.Linear(300, 300).weight.is_meta
