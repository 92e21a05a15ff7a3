"""Stopped and gone on with, a run ends as if it had never stopped."""

import json
from dataclasses import replace

import pytest
import torch
from model_folders import llama_config, save_model
from plan_maker import make_plan
from runs import run_job, saved_state
from transformers import AutoModelForCausalLM, GPT2Config

from planner.errors import ArtifactError, RunError
from planner.run_record import load_metrics, load_run
from planner.runtime.checkpoint_folder import complete_checkpoints, load_progress
from planner.runtime.checkpoint_tensors import read_tensors, write_tensors
from planner.runtime.export import export
from planner.runtime.options import RunOptions

LLAMA = ["embedding", *(f"model.layers.{i}" for i in range(4)), "head"]
GPT2 = ["embedding", *(f"transformer.h.{i}" for i in range(4)), "head"]
TRAINING = {
    "lr": 1e-2,
    "lr_schedule": "linear",
    "warmup_steps": 2,
    "weight_decay": 0.1,
    "steps": 6,
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    # Dropout, and a tied embedding.
    config = GPT2Config(n_embd=32, n_layer=4, n_head=4, vocab_size=256, n_positions=64)
    llama = llama_config(num_hidden_layers=4)
    return {
        "gpt2": save_model(config, root / "gpt2"),
        "llama": save_model(llama, root / "llama"),
    }


def train(processes, plan, run_dir, lines, **changes):
    options = RunOptions(output_dir=run_dir, data=str(lines), **{**TRAINING, **changes})
    work_dir = run_dir.with_name(f"{run_dir.name}-work-{options.steps}")
    run_job(processes, plan, options, work_dir)
    return load_metrics(run_dir)


def untimed(metrics):
    return [replace(x, step_s=0.0, tokens_per_s=0.0) for x in metrics]


@pytest.mark.parametrize(
    ("name", "layers", "optimizer", "dtype"),
    [
        ("gpt2", GPT2, "adamw", "float32"),
        ("gpt2", GPT2, "adamw", "bfloat16"),
        ("llama", LLAMA, "adamw-bf16", "bfloat16"),
    ],
)
def test_under_the_same_plan_it_goes_on_bit_for_bit(
    processes, folders, lines, tmp_path, name, layers, optimizer, dtype
):
    plan = replace(
        make_plan(folders[name], layers, [2, 4], optimizer=optimizer), dtype=dtype
    )
    straight = train(processes, plan, tmp_path / "run", lines, save_every=4)
    saved = complete_checkpoints(tmp_path / "run")
    assert [path.name for path in saved] == ["step-4", "step-6"]
    progress = load_progress(saved[0])
    assert (progress.step, progress.epoch, progress.sequence) == (4, 1, 4)
    gone_on = train(processes, plan, tmp_path / "on", lines, resume=saved[0])
    assert untimed(gone_on) == untimed(straight[4:])
    before, after = saved_state(tmp_path / "run"), saved_state(tmp_path / "on")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)


@pytest.mark.parametrize(
    ("counts", "change"),
    [
        ([1, 2, 3], {}),
        ([6], {}),
        ([2, 1, 2, 1], {"schedule": "zb-v", "num_devices": 2}),
        ([3, 3], {"recompute": LLAMA[1:4]}),
    ],
)
def test_under_another_plan_it_goes_on_with_the_same_loss(
    processes, folders, lines, tmp_path, counts, change
):
    plan = make_plan(folders["llama"], LLAMA, [2, 4])
    straight = train(processes, plan, tmp_path / "run", lines, save_every=3)
    other = make_plan(folders["llama"], LLAMA, counts, **change)
    saved = complete_checkpoints(tmp_path / "run")[0]
    gone_on = train(processes, other, tmp_path / "on", lines, resume=saved)
    assert [x.step for x in gone_on] == [4, 5, 6]
    losses = [x.loss for x in straight[3:]]
    assert [x.loss for x in gone_on] == pytest.approx(losses, rel=1e-5)


def test_copies_of_a_pipeline_go_on_bit_for_bit(processes, folders, lines, tmp_path):
    plan = make_plan(folders["gpt2"], GPT2, [2, 4], num_microbatches=2, num_copies=2)
    straight = train(processes, plan, tmp_path / "run", lines, save_every=4)
    saved = complete_checkpoints(tmp_path / "run")[0]
    gone_on = train(processes, plan, tmp_path / "on", lines, resume=saved)
    assert untimed(gone_on) == untimed(straight[4:])
    before, after = saved_state(tmp_path / "run"), saved_state(tmp_path / "on")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)


@pytest.mark.parametrize("num_copies", [1, 2])
def test_with_more_or_fewer_copies_it_goes_on_with_the_same_loss(
    processes, folders, lines, tmp_path, num_copies
):
    plans = [
        make_plan(
            folders["llama"],
            LLAMA,
            [2, 4],
            num_microbatches=4 // count,
            num_copies=count,
        )
        for count in (num_copies, 3 - num_copies)
    ]
    straight = train(processes, plans[0], tmp_path / "run", lines, save_every=3)
    saved = complete_checkpoints(tmp_path / "run")[0]
    gone_on = train(processes, plans[1], tmp_path / "on", lines, resume=saved)
    losses = [x.loss for x in straight[3:]]
    assert [x.loss for x in gone_on] == pytest.approx(losses, rel=1e-5)


def test_in_its_own_directory_it_continues_its_metrics(
    processes, folders, lines, tmp_path
):
    plan, run_dir = make_plan(folders["llama"], LLAMA, [2, 4]), tmp_path / "run"
    constant = {"lr_schedule": "constant", "warmup_steps": 0}
    first = train(processes, plan, run_dir, lines, steps=2, **constant)
    with (run_dir / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 3, "loss": 9.9})[:-4])  # torn by a crash
    saved = complete_checkpoints(run_dir)[-1]
    metrics = train(processes, plan, run_dir, lines, steps=4, resume=saved, **constant)
    assert [x.step for x in metrics] == [1, 2, 3, 4]
    assert metrics[:2] == first
    assert load_run(run_dir).status == "finished"
    assert saved_state(run_dir)
    assert not list(run_dir.glob(".model*"))


def test_a_checkpoint_is_exported_as_an_ordinary_model(
    processes, folders, lines, tmp_path
):
    plan = make_plan(folders["llama"], LLAMA, [2, 3, 1])
    train(processes, plan, tmp_path / "run", lines, steps=2)
    export(tmp_path / "run", tmp_path / "exported")
    model, found = AutoModelForCausalLM.from_pretrained(
        tmp_path / "exported", output_loading_info=True
    )
    assert not found["missing_keys"]
    assert not found["unexpected_keys"]
    assert model.lm_head.weight is model.model.embed_tokens.weight
    trained = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "model")
    for one, other in zip(
        model.state_dict().values(), trained.state_dict().values(), strict=True
    ):
        assert torch.equal(one, other)
    for folder in (tmp_path / "exported", tmp_path / "run" / "model"):
        card = (folder / "README.md").read_text()
        assert "2 steps of 4 sequences of 16 tokens, float32, adamw." in card
        assert str(tmp_path) not in card.replace(str(lines), "")
    with pytest.raises(ArtifactError, match="is there already"):
        export(tmp_path / "run", tmp_path / "exported")


def test_a_disk_that_is_full_leaves_the_last_checkpoint_as_it_was(processes, tmp_path):
    good = tmp_path / "good"
    good.mkdir()
    (tmp_path / "full").write_text("no folder")  # as little can be written here
    for folder in (good, tmp_path / "full"):
        found = processes.call(_write, str(folder), 2)
        if folder == good:
            assert found == [None, None]
        else:
            assert all("cannot write" in text for text in found)
    assert processes.call(_read, str(good), 2) == [0.0, 1.0]


def _write(folder, rank):
    from pathlib import Path

    try:
        write_tensors(Path(folder), {f"w{rank}": torch.full((3,), float(rank))})
    except RunError as error:
        return str(error)
    return None


def _read(folder, rank):
    from pathlib import Path

    tensor = torch.empty(3)
    read_tensors(Path(folder), {f"w{rank}": tensor})
    return tensor.mean().item()
