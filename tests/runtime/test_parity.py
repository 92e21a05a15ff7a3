"""Split over processes, training gives the numbers of one process."""

import json
from pathlib import Path

import pytest
import torch
from model_folders import llama_config, mixtral_config, save_model
from one_process import train_unsplit
from plan_maker import make_plan
from runs import run_job, saved_state
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from planner.run_record import load_metrics, load_run
from planner.runtime.options import RunOptions

NUM_STEPS = 3
LLAMA = ["embedding", *(f"model.layers.{i}" for i in range(6)), "head"]
MIXTRAL = ["embedding", *(f"model.layers.{i}" for i in range(4)), "head"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    return {
        "tied": save_model(llama_config(), root / "tied"),
        "untied": save_model(llama_config(tie_word_embeddings=False), root / "untied"),
        "experts": save_model(mixtral_config(), root / "experts"),
    }


COPIES = [
    ("tied", [8], "1f1b", 1, 4),
    ("tied", [4, 4], "1f1b", 2, 2),
    ("tied", [2, 2, 3, 1], "zb-v", 2, 2),
    ("experts", [3, 3], "1f1b", 2, 2),
]
CASES = [
    ("tied", [8], "1f1b", 1, ()),
    ("tied", [4, 4], "1f1b", 2, ()),
    ("tied", [3, 2, 3], "1f1b", 3, LLAMA[1:-1]),
    ("tied", [1, 3, 3, 1], "gpipe", 4, ()),
    ("tied", [2, 2, 2, 2], "1f1b", 4, LLAMA[2:5]),
    ("tied", [2, 2, 3, 1], "zb-v", 2, LLAMA[2:5]),
    ("tied", [2, 2, 3, 1], "interleaved-1f1b", 2, ()),
    ("untied", [2, 6], "gpipe", 2, LLAMA[1:-1]),
    ("untied", [5, 1, 1, 1], "1f1b", 4, ()),
    ("experts", [2, 2, 2], "1f1b", 3, MIXTRAL[1:-1]),
    ("experts", [1, 1, 3, 1], "1f1b", 4, ()),
    ("experts", [1, 2, 2, 1], "interleaved-zb", 2, MIXTRAL[1:-1]),
]


@pytest.mark.parametrize(
    ("name", "counts", "schedule", "num_devices", "recompute"), CASES
)
def test_losses_norms_and_weights_equal_one_process(
    processes, folders, lines, tmp_path, name, counts, schedule, num_devices, recompute
):
    folder = folders[name]
    names = MIXTRAL if name == "experts" else LLAMA
    plan = make_plan(
        folder,
        names,
        counts,
        schedule=schedule,
        num_devices=num_devices,
        recompute=recompute,
        seq_len=16,
    )
    options = RunOptions(
        output_dir=tmp_path / "run", data=str(lines), lr=1e-2, steps=NUM_STEPS
    )
    job = run_job(processes, plan, options, tmp_path / "work")

    losses, norms, state = train_unsplit(
        folder, job.sequences(), options, num_steps=NUM_STEPS, batch_size=4
    )
    metrics = load_metrics(options.output_dir)
    assert [m.step for m in metrics] == [1, 2, 3]
    assert [m.loss for m in metrics] == pytest.approx(losses, rel=1e-4)
    assert [m.grad_norm for m in metrics] == pytest.approx(norms, rel=1e-4)
    model = AutoModelForCausalLM.from_pretrained(
        options.output_dir / "model", dtype=torch.float32
    )
    # By tensor: AdamW divides gradients that are nearly 0 by their own size, so a
    # single element may differ by more.
    for key, value in model.state_dict().items():
        assert (value - state[key]).norm() <= 1e-4 * state[key].norm(), key


@pytest.mark.parametrize(
    ("name", "counts", "schedule", "num_devices", "num_copies"), COPIES
)
def test_copies_of_a_pipeline_equal_one_process(
    processes, folders, lines, tmp_path, name, counts, schedule, num_devices, num_copies
):
    plan = make_plan(
        folders[name],
        MIXTRAL if name == "experts" else LLAMA,
        counts,
        schedule=schedule,
        num_devices=num_devices,
        num_copies=num_copies,
    )
    options = RunOptions(
        output_dir=tmp_path / "run", data=str(lines), lr=1e-2, steps=NUM_STEPS
    )
    job = run_job(processes, plan, options, tmp_path / "work")

    losses, norms, state = train_unsplit(
        folders[name],
        job.sequences(),
        options,
        num_steps=NUM_STEPS,
        batch_size=4 * num_copies,
    )
    metrics = load_metrics(options.output_dir)
    assert [m.loss for m in metrics] == pytest.approx(losses, rel=1e-4)
    assert [m.grad_norm for m in metrics] == pytest.approx(norms, rel=1e-4)
    model, found = AutoModelForCausalLM.from_pretrained(
        options.output_dir / "model", dtype=torch.float32, output_loading_info=True
    )
    assert not found["missing_keys"]
    for key, value in model.state_dict().items():
        assert (value - state[key]).norm() <= 1e-4 * state[key].norm(), key


@pytest.mark.parametrize(
    ("counts", "schedule", "num_devices"),
    [([3, 2, 3], "1f1b", 3), ([2, 2, 3, 1], "zb-v", 2)],
)
def test_the_saved_model_has_every_tensor_once_and_keeps_its_tie(
    processes, folders, lines, tmp_path, counts, schedule, num_devices
):
    plan = make_plan(
        folders["tied"], LLAMA, counts, schedule=schedule, num_devices=num_devices
    )
    options = RunOptions(output_dir=tmp_path / "run", data=str(lines), lr=0.0, steps=1)
    run_job(processes, plan, options, tmp_path / "work")

    before = load_file(folders["tied"] / "model.safetensors")
    after = saved_state(options.output_dir)
    assert after.keys() == before.keys()
    assert "lm_head.weight" not in after
    for key, value in before.items():
        assert torch.equal(after[key], value), key
    model, found = AutoModelForCausalLM.from_pretrained(
        options.output_dir / "model", output_loading_info=True
    )
    assert not found["missing_keys"]
    assert not found["unexpected_keys"]
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_an_experts_checkpoint_is_saved_as_it_came(processes, folders, lines, tmp_path):
    plan = make_plan(folders["experts"], MIXTRAL, [3, 3])
    options = RunOptions(output_dir=tmp_path / "run", data=str(lines), lr=0.0, steps=1)
    run_job(processes, plan, options, tmp_path / "work")

    before = load_file(folders["experts"] / "model.safetensors")
    after = saved_state(options.output_dir)
    assert after.keys() == before.keys()
    assert all(torch.equal(after[key], value) for key, value in before.items())


def test_random_weights_do_not_depend_on_the_cut(processes, folders, lines, tmp_path):
    losses = []
    for number, counts in enumerate([[8], [2, 6], [1, 3, 3, 1]]):
        plan = make_plan(folders["tied"], LLAMA, counts)
        options = RunOptions(
            output_dir=tmp_path / f"run{number}", data=str(lines), init="random"
        )
        run_job(processes, plan, options, tmp_path / f"work{number}")
        losses.append([m.loss for m in load_metrics(options.output_dir)])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert losses[2] == pytest.approx(losses[0], rel=1e-4)


def test_a_run_directory_is_complete(processes, folders, lines, tmp_path):
    plan = make_plan(
        folders["tied"], LLAMA, [2, 2, 3, 1], schedule="zb-v", num_devices=2
    )
    options = RunOptions(output_dir=tmp_path / "run", data=str(lines), steps=3)
    run_job(processes, plan, options, tmp_path / "work")

    record = load_run(options.output_dir)
    assert record.status == "finished"
    measured = record.measured
    assert measured is not None
    for stage in measured.stages:
        assert stage.busy_s > 0
        assert 0 <= stage.bubble_fraction < 1
        assert stage.forward_s > 0
        assert stage.backward_s > 0
        assert stage.weight_grad_s > 0
    assert [device.stages for device in measured.devices] == [(0, 3), (1, 2)]
    for device, actions in zip(measured.devices, plan.schedule.actions, strict=True):
        own = [measured.stages[index] for index in device.stages]
        spans = sorted((x for s in own for x in s.spans), key=lambda x: x.start_s)
        assert tuple(span.action for span in spans) == actions
        assert device.busy_s == pytest.approx(sum(s.busy_s for s in own))
        assert {s.peak_bytes for s in own} == {device.peak_bytes}
        assert device.peak_bytes > 0
        assert device.optimizer_s > 0
    trace = json.loads((options.output_dir / "trace.json").read_text())
    num_actions = sum(len(row) for row in plan.schedule.actions)
    assert sum(e["ph"] == "X" for e in trace["traceEvents"]) == num_actions
    names = {path.name for path in options.output_dir.iterdir()}
    assert names == {"run.json", "metrics.jsonl", "trace.json", "model", "checkpoints"}
    assert not list(Path(options.output_dir).rglob(".*partial"))
