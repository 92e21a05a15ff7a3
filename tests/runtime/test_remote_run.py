"""A model with its own code goes through every command, as any other does."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from one_process import own_losses, train_unsplit
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from planner.chain.source import build_model, open_source
from planner.cli import main
from planner.run_record import load_metrics
from planner.runtime.data import load_sequences
from planner.runtime.options import RunOptions

PEBBLE = Path(__file__).parents[1] / "remote_model"


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    """Commands write where they are called."""
    monkeypatch.chdir(tmp_path)


def make_pebble(folder, balance_loss_weight):
    shutil.copytree(PEBBLE, folder)
    path = folder / "config.json"
    changes = {"gate_noise": 0.0, "balance_loss_weight": balance_loss_weight}
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    source = open_source(str(folder), trust_remote_code=True)
    torch.manual_seed(0)
    model = build_model(source, dtype=torch.float32, attention="auto")
    save_file(model.state_dict(), folder / "model.safetensors")


def write_lines(path):
    generator = torch.Generator().manual_seed(0)
    with path.open("w") as file:
        for row in range(8):
            ids = torch.randint(3, 256, (16,), generator=generator).tolist()
            labels = [-100] * row + ids[row:]
            file.write(json.dumps({"input_ids": ids, "labels": labels}) + "\n")


def call(*arguments):
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return result


def test_without_a_yes_no_command_runs_its_code():
    result = CliRunner().invoke(main, ["profile", str(PEBBLE), "--device", "cpu"])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {PEBBLE} brings its own")
    assert "--trust-remote-code" in result.stderr


@pytest.mark.parametrize("balance_loss_weight", [0.0, 0.5])
def test_profile_solve_and_run_train_as_one_process_does(tmp_path, balance_loss_weight):
    make_pebble(tmp_path / "pebble", balance_loss_weight)
    write_lines(tmp_path / "lines.jsonl")
    trusted = ("profile", "pebble", "--trust-remote-code")
    call(*trusted, "--device", "cpu", "--seq-len", "16", "-o", "cpu.json")
    sizes = ("--gpus", "2", "--global-batch-size", "4", "--microbatch-size", "1")
    call("solve", "cpu.json", *sizes, "--layers-per-stage", "3,3", "-o", "plan.json")
    data = ("--data", "lines.jsonl", "--steps", "2", "--lr", "1e-3")
    untrusted = CliRunner().invoke(main, ["run", "plan.json", *data])
    assert untrusted.exit_code == 1
    assert "--trust-remote-code" in untrusted.stderr
    call("run", "plan.json", *data, "--output-dir", "run", "--trust-remote-code")
    untrusted = CliRunner().invoke(main, ["export", "run", "-o", "model"])
    assert untrusted.exit_code == 1
    assert "--trust-remote-code" in untrusted.stderr
    call("export", "run", "-o", "model", "--trust-remote-code")
    assert Path("model/model.safetensors.index.json").exists()

    options = RunOptions(output_dir=tmp_path / "one", lr=1e-3)
    rows = load_sequences(
        "lines.jsonl", seq_len=16, vocab_size=256, encode=None, eos_id=None
    )
    losses, norms, state = train_unsplit(
        "pebble",
        rows,
        options,
        num_steps=2,
        batch_size=4,
        loss_of=own_losses,
        trust_remote_code=True,
    )
    metrics = load_metrics(tmp_path / "run")
    assert [m.loss for m in metrics] == pytest.approx(losses, rel=1e-5)
    assert [m.grad_norm for m in metrics] == pytest.approx(norms, rel=1e-4)
    model, found = AutoModelForCausalLM.from_pretrained(
        "run/model",
        dtype=torch.float32,
        trust_remote_code=True,
        output_loading_info=True,
    )
    assert not found["missing_keys"]
    assert not found["unexpected_keys"]
    for key, value in model.state_dict().items():
        assert (value - state[key]).norm() <= 1e-4 * state[key].norm(), key
