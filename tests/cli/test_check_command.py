"""`planner check` prints a table or JSON and ends with 1 when a cut differs."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from planner.chain.check import CheckReport, CutCheck, RefusedCut
from planner.cli import main

REPORT = CheckReport(
    model="org/Tiny-1B",
    exact=True,
    num_parameters=1234,
    num_gradients=9,
    cuts=(
        CutCheck(
            after_layer="embedding",
            loss_difference=0.0,
            worst_gradient_difference=1e-7,
            where="head.weight",
        ),
    ),
    refused=(RefusedCut(after_layer="layers.1", why="it is shared"),),
)
WRONG = replace(
    REPORT,
    exact=False,
    cuts=(replace(REPORT.cuts[0], worst_gradient_difference=float("inf")),),
)


@pytest.fixture
def asked(monkeypatch):
    """What `check` asks; the answer is the first entry."""
    answers, calls = [REPORT], []

    def check_model(model, **options):
        calls.append((model, options))
        return answers[0]

    monkeypatch.setattr("planner.chain.check.check_model", check_model)
    return answers, calls


def call(*arguments):
    return CliRunner().invoke(main, ["check", *arguments])


def test_a_model_that_is_exact_ends_with_zero(asked):
    result = call("org/Tiny-1B")
    assert result.exit_code == 0, result.output
    assert "embedding  0.0e+00         1.0e-07  head.weight" in result.stdout
    assert "after layers.1: it is shared" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("exact: ")


def test_the_options_are_handed_on(asked):
    call("m", "--attention", "eager", "--revision", "v1", "--trust-remote-code")
    assert asked[1] == [
        ("m", {"attention": "eager", "revision": "v1", "trust_remote_code": True})
    ]


def test_json_is_alone_on_stdout(asked):
    answer = json.loads(call("m", "--json").stdout)
    assert answer["refused"] == [{"after_layer": "layers.1", "why": "it is shared"}]
    assert answer["exact"] is True


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_difference_ends_with_one_and_names_the_offender(asked, options):
    asked[0][0] = WRONG
    result = call("org/Tiny-1B", *options)
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: org/Tiny-1B does not train the same when it is cut")
    assert "after embedding" in line
    assert "gradient of head.weight" in line
    if options:
        assert json.loads(result.stdout)["exact"] is False


def test_a_model_that_cannot_be_cut_is_one_line():
    result = call("reformer")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == (
        "error: reformer.encoder.layers.1 of reformer runs inside a backward pass "
        "of its own\n"
    )
