"""What a checkpoint calls a parameter, asked of whichever transformers is here."""

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from planner.chain.stored_names import as_stored, assign, renamer
from planner.chain.tiny import tiny_config


def make_model():
    """In a checkpoint it is a part of a larger model, by another name."""
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(tiny_config("gemma3n_text"))


def test_every_parameter_is_stored_as_save_pretrained_does(tmp_path):
    model = make_model()
    model.save_pretrained(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    tensors = {n: p.detach() for n, p in model.named_parameters()}
    assert set(saved) <= set(as_stored(model, tensors))


def test_what_was_saved_comes_back_under_the_names_of_the_model(tmp_path):
    model, other = make_model(), make_model()
    model.save_pretrained(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    assert {renamer(model)(key) for key in saved} <= model.state_dict().keys()
    for parameter in other.parameters():
        torch.nn.init.zeros_(parameter)
    assign(other, saved)
    # A tied parameter is stored under one of its names.
    for name in map(renamer(model), saved):
        assert torch.equal(other.state_dict()[name], model.state_dict()[name]), name
