"""A small copy of a model is cut everywhere and held against itself unsplit."""

import json
import math

import pytest
import torch
from model_folders import llama_config, mixtral_config, save_model
from own_code_folder import remote_folder

from planner import artifact
from planner.chain import parity, shrunken
from planner.chain.check import CheckReport, CutCheck, check_model, spread
from planner.chain.check_text import describe_check, offence
from planner.chain.shrunken import open_shrunken
from planner.errors import ModelError

BLOCKS = [f"model.layers.{i}" for i in range(4)]


@pytest.fixture(scope="module")
def llama():
    return check_model("llama")


def test_every_legal_cut_is_tried_and_one_over_three_and_four_stages(llama):
    assert llama.exact
    assert [cut.after_layer for cut in llama.cuts] == ["embedding", *BLOCKS]
    assert [cut.after_layer for cut in llama.several] == [
        "model.layers.0, model.layers.2",
        "embedding, model.layers.1, model.layers.3",
    ]
    assert not llama.refused
    assert llama.num_gradients == llama.num_parameters


def test_the_answer_has_the_keys_that_others_rely_on(llama):
    answer = json.loads(artifact.to_json(llama))
    assert {*answer} == {
        *("model", "exact", "num_parameters", "num_gradients", "cuts", "refused"),
        "several",
    }
    assert {*answer["cuts"][0]} == {
        *("after_layer", "loss_difference", "worst_gradient_difference", "where")
    }


def test_a_folder_is_checked_without_its_weights(tmp_path):
    config = llama_config(num_hidden_layers=20)
    config.save_pretrained(tmp_path)
    report = check_model(str(tmp_path))
    assert report.exact
    assert len(report.tried) == 7, "four blocks stand for twenty equal ones"


def test_a_type_adds_its_balance_loss_and_a_folder_as_it_says(tmp_path):
    save_model(mixtral_config(), tmp_path)
    assert open_shrunken("mixtral").config.output_router_logits
    assert not open_shrunken(str(tmp_path)).config.output_router_logits


def test_cuts_that_there_are_not_are_listed_with_the_reason():
    report = check_model("dory")
    (place,) = report.refused
    assert place.after_layer.endswith(".1")
    assert "runs again" in place.why
    assert f"after {place.after_layer}: {place.why}" in describe_check(report)


def test_a_model_of_its_own_code_is_checked_when_that_is_allowed(tmp_path):
    folder = str(remote_folder(tmp_path))
    with pytest.raises(ModelError, match="--trust-remote-code"):
        check_model(folder)
    report = check_model(folder, trust_remote_code=True)
    assert report.exact
    assert len(report.tried) == 7


def test_settings_that_its_constructor_does_not_name_stay(tmp_path):
    folder = str(remote_folder(tmp_path))
    config = open_shrunken(folder, trust_remote_code=True).config
    assert (config.residual_scale, config.hidden_size) == (0.5, 64)


def test_what_cannot_be_shrunk_says_why(tmp_path, monkeypatch):
    def no(config):
        msg = "widths"
        raise KeyError(msg)

    save_model(llama_config(), tmp_path)
    monkeypatch.setattr(shrunken, "shrink_config", no)
    with pytest.raises(ModelError, match="cannot be shrunk: KeyError: 'widths'"):
        check_model(str(tmp_path))
    monkeypatch.setattr(shrunken, "tiny_config", no)
    with pytest.raises(ModelError, match="llama cannot be shrunk: KeyError: 'widths'"):
        check_model("llama")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("reformer", "inside a backward pass of its own"),
        ("gemma4_assistant", "that model's keys and values"),
        ("t5", "cannot build as a causal language model"),
        ("./nowhere", "there is no model folder ./nowhere"),
    ],
)
def test_what_cannot_be_checked_is_refused_by_name(model, message):
    with pytest.raises(ModelError, match=message):
        check_model(model)


# --- broken cuts --------------------------------------------------------------


def breaking(monkeypatch, change):
    """Changes every hidden state that crosses a cut."""
    original = parity.build_stage

    def build_stage(*args, **kwargs):
        stage = original(*args, **kwargs)
        if not stage.is_last:
            stage.register_forward_hook(lambda module, given, output: change(output))
        return stage

    monkeypatch.setattr(parity, "build_stage", build_stage)


def scaled(output):
    """Right by one part in a thousand."""
    return (
        tuple(x * 1.001 for x in output)
        if isinstance(output, tuple)
        else (output * 1.001)
    )


def detached(output):
    """The right values, without a way back."""
    if isinstance(output, tuple):
        return tuple(x.detach() for x in output)
    return output.detach()


def test_a_wrong_value_is_caught_and_named(monkeypatch):
    breaking(monkeypatch, scaled)
    report = check_model("gpt2")
    assert not report.exact
    assert any(cut.loss_difference > 1e-6 for cut in report.tried)
    assert all(cut.where for cut in report.cuts)
    assert "gpt2 does not train the same when it is cut after" in offence(report)


def test_a_lost_gradient_is_caught_although_the_loss_is_right(monkeypatch):
    breaking(monkeypatch, detached)
    report = check_model("gpt2")
    assert not report.exact
    first = report.cuts[0]
    assert first.loss_difference <= parity.LOSS_TOLERANCE
    assert first.where == "transformer.wpe.weight"
    assert first.worst_gradient_difference == math.inf


def test_a_stage_that_fails_is_an_offender(monkeypatch):
    def fail(output):
        msg = "too few layers"
        raise IndexError(msg)

    breaking(monkeypatch, fail)
    report = check_model("gpt2")
    assert not report.exact
    assert report.cuts[0].where == "IndexError: too few layers"


def test_a_loss_that_is_no_number_is_not_exact(monkeypatch):
    breaking(monkeypatch, lambda output: output * torch.nan)
    report = check_model("gpt2")
    assert not report.exact
    assert "loss differs by nan" in offence(report)


# --- words --------------------------------------------------------------------


def test_the_worst_cut_is_the_offender():
    def cut(name, gradient):
        return CutCheck(
            after_layer=name,
            loss_difference=0.0,
            worst_gradient_difference=gradient,
            where="w",
        )

    report = CheckReport(
        model="mine",
        exact=False,
        num_parameters=10,
        num_gradients=2,
        cuts=(cut("a", 1e-7), cut("b", 0.5), cut("c", 0.1)),
        refused=(),
    )
    assert offence(report) == (
        "mine does not train the same when it is cut after b: the loss differs by "
        "0.0e+00, the gradient of w by 5.0e-01 (2 of 3 cuts differ); do not train "
        "it split"
    )
    assert "exact" not in describe_check(report)


@pytest.mark.parametrize(
    ("number", "expected"), [(1, [3]), (2, [1, 4]), (3, [1, 3, 5]), (7, [])]
)
def test_several_cuts_are_spread_evenly(number, expected):
    assert spread([0, 1, 2, 3, 4, 5], number) == expected
