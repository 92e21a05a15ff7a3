"""What a user does wrong with `planner profile` ends in one line, from end to end."""

import json

import pytest
from click.testing import CliRunner
from model_folders import llama_config

from planner.cli import main


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The current folder: a tiny model, a file, and no CUDA card."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(llama_config().to_dict()))
    (tmp_path / "empty").mkdir()
    (tmp_path / "model.gguf").write_bytes(b"GGUF")


@pytest.mark.parametrize(
    ("arguments", "problem", "next_step"),
    [
        (["tiny", "--seq-len", "129"], "at most 128 tokens", "--seq-len 128"),
        (["tiny", "--device", "t4"], "t4 has no bfloat16", "--dtype float32"),
        (["tiny", "--device", "rtx3900"], "unknown card 'rtx3900'", "rtx3090"),
        (["tiny", "--device", "cuda"], "no CUDA card", "--device cpu"),
        (["tiny", "--device", "cuda:3"], "cuda:3", "CUDA_VISIBLE_DEVICES=3"),
        (["tiny", "--attention", "odd"], "no attention 'odd'", "--attention auto"),
        (["tiny", "-o", "model.gguf/a.json"], "model.gguf is a file", "with -o"),
        (["tiny", "-o", "tiny"], "cannot write tiny", "with -o"),
        (["empty"], "it has no config.json", "give the folder"),
        (["model.gguf"], "GGUF", "give the folder"),
        (["./gone"], "there is no model folder", "check the path"),
        ([""], "no model is named", "give a hub id"),
    ],
)
def test_a_mistake_is_one_line_with_the_next_step(arguments, problem, next_step):
    options = ["--device", "rtx3090", "--seq-len", "16", *arguments[1:]]
    result = CliRunner().invoke(main, ["profile", arguments[0], *options])
    assert result.exit_code == 1, result.output
    (line,) = [x for x in result.stderr.splitlines() if x.startswith("error: ")]
    assert result.stderr.endswith(line + "\n")
    assert problem in line
    assert next_step in line
    assert result.stdout == ""


@pytest.mark.parametrize(
    "size", ["", "0", "-1", "1.5", "1,x", "1;2", "all"], ids=lambda size: f"'{size}'"
)
def test_sizes_that_are_none_are_bad_usage(size):
    result = CliRunner().invoke(main, ["profile", "tiny", "--microbatch-size", size])
    assert result.exit_code == 2
    assert "is not a list of whole numbers from 1, such as 1,2,4" in result.stderr
