"""Before training, the cut of a type that is not known is tried on a small copy."""

import pytest
from model_folders import llama_config
from own_code_folder import remote_folder
from plan_maker import make_plan

from planner.chain.parity import CutDifference
from planner.chain.source import ModelSource, open_source
from planner.errors import ModelError
from planner.runtime import cut_check
from planner.runtime.cut_check import check_before_training, cuts_at

LAYERS = ["embedding", *(f"model.layers.{i}" for i in range(6)), "head"]


@pytest.fixture
def unknown(monkeypatch):
    monkeypatch.setattr(cut_check, "is_known_exact", lambda model_type: False)


def llama(counts):
    plan = make_plan("mine", LAYERS, counts, attention="auto")
    return plan, ModelSource(id="mine", config=llama_config())


def test_a_type_that_is_not_known_is_tried_as_the_plan_cuts_it(unknown):
    line = check_before_training(*llama([2, 4, 2]))
    assert line.startswith("checked the type llama: a small copy in 3 stages trains as")


def test_a_known_type_is_not_tried(monkeypatch):
    monkeypatch.setattr(cut_check, "is_known_exact", lambda model_type: True)
    assert check_before_training(*llama([4, 4])) == ""


def test_one_stage_is_no_cut(unknown):
    assert check_before_training(*llama([8])) == ""


def test_code_of_its_own_is_always_tried(monkeypatch, tmp_path):
    monkeypatch.setattr(cut_check, "is_known_exact", lambda model_type: True)
    folder = str(remote_folder(tmp_path))
    source = open_source(folder, trust_remote_code=True)
    names = ["embedding", *(f"layers.{i}" for i in range(24)), "head"]
    plan = make_plan(folder, names, [10, 16], attention="auto")
    assert "a small copy in 2 stages" in check_before_training(plan, source)


def test_a_difference_stops_the_run_and_is_named(unknown, monkeypatch):
    def wrong(source, chain, reference, ends, *, attention):
        return CutDifference(
            last_layers=tuple(ends), loss=0.5, gradient=2.0, where="lm_head.weight"
        )

    monkeypatch.setattr(cut_check, "check_cut", wrong)
    with pytest.raises(ModelError, match=r"mine does not train the same .*--no-check"):
        check_before_training(*llama([4, 4]))


def test_what_cannot_be_tried_is_said_and_stops_nothing(unknown, monkeypatch):
    def no(source):
        msg = "the configuration of mine cannot be shrunk: odd widths"
        raise ModelError(msg)

    monkeypatch.setattr(cut_check, "shrink_source", no)
    line = check_before_training(*llama([4, 4]))
    assert line.startswith("not checked whether the type llama trains the same")
    assert line.endswith("odd widths")


@pytest.mark.parametrize(
    ("shares", "legal", "num_layers", "expected"),
    [
        ([0.5], [0, 1, 2, 3, 4], 6, (2,)),
        ([0.0, 0.9], [0, 1, 2, 3, 4], 6, (0, 4)),
        ([0.1, 0.2, 0.3], [0, 1, 2, 3, 4], 6, (0, 1, 2)),
        ([0.4], [0, 4], 6, (0,)),
        ([0.8, 0.9], [0, 1], 6, (1,)),
        ([0.5], [], 6, ()),
    ],
)
def test_a_cut_lies_where_the_plan_has_it(shares, legal, num_layers, expected):
    assert cuts_at(shares, legal, num_layers) == expected
