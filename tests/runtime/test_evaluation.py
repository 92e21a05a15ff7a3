"""The model is evaluated on the way, and training does not notice."""

import json
from dataclasses import replace

import pytest
import torch
from model_folders import llama_config, mixtral_config, save_model
from plan_maker import make_plan
from runs import run_job, saved_state
from transformers import AutoModelForCausalLM, GPT2Config

from planner.errors import DataError, WishError
from planner.run_record import load_metrics
from planner.runtime.job import prepare_job
from planner.runtime.options import RunOptions

LLAMA = ["embedding", *(f"model.layers.{i}" for i in range(6)), "head"]
MIXTRAL = ["embedding", *(f"model.layers.{i}" for i in range(4)), "head"]
GPT2 = ["embedding", *(f"transformer.h.{i}" for i in range(4)), "head"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    # With dropout; a balance loss, which an evaluation leaves out.
    gpt2 = GPT2Config(n_embd=32, n_layer=4, n_head=4, vocab_size=256, n_positions=64)
    return {
        "llama": save_model(llama_config(), root / "llama"),
        "experts": save_model(mixtral_config(), root / "experts"),
        "gpt2": save_model(gpt2, root / "gpt2"),
    }


@pytest.fixture
def held_out(tmp_path):
    """Rows of unequal length, fewer than any number of batches would hold."""
    generator = torch.Generator().manual_seed(1)
    path = tmp_path / "held_out.jsonl"
    with path.open("w") as file:
        for row in range(7):
            ids = torch.randint(0, 256, (4 + row,), generator=generator).tolist()
            file.write(json.dumps({"input_ids": ids}) + "\n")
    return path


def unsplit_loss(run_dir, path):
    """The mean over all target tokens, row by row in one process."""
    model = AutoModelForCausalLM.from_pretrained(run_dir / "model", dtype=torch.float32)
    total, count = 0.0, 0
    with torch.no_grad():
        for line in path.read_text().splitlines():
            ids = torch.tensor([json.loads(line)["input_ids"]])
            logits = model.eval()(input_ids=ids, use_cache=False).logits[0, :-1]
            total += torch.nn.functional.cross_entropy(
                logits, ids[0, 1:], reduction="sum"
            ).item()
            count += ids.shape[1] - 1
    return total / count


@pytest.mark.parametrize(
    ("name", "layers", "counts", "change"),
    [
        ("llama", LLAMA, [3, 5], {}),
        ("llama", LLAMA, [2, 2, 3, 1], {"schedule": "zb-v", "num_devices": 2}),
        ("llama", LLAMA, [2, 3, 3], {"recompute": LLAMA[1:-1]}),
        ("llama", LLAMA, [3, 5], {"num_copies": 2}),
        ("experts", MIXTRAL, [3, 3], {}),
        ("gpt2", GPT2, [2, 1, 2, 1], {"schedule": "interleaved-zb", "num_devices": 2}),
    ],
)
def test_it_is_the_loss_of_the_unsplit_model(
    processes, folders, lines, held_out, tmp_path, name, layers, counts, change
):
    plan = make_plan(folders[name], layers, counts, **change)
    options = RunOptions(
        output_dir=tmp_path / "run",
        data=str(lines),
        lr=1e-2,
        steps=3,
        eval_data=str(held_out),
        eval_every=2,
    )
    run_job(processes, plan, options, tmp_path / "work")
    first, second, third = load_metrics(options.output_dir)
    assert first.eval_loss is None
    assert second.eval_loss is not None
    expected = unsplit_loss(options.output_dir, held_out)
    assert third.eval_loss == pytest.approx(expected, rel=1e-5)
    assert third.eval_loss != pytest.approx(second.eval_loss, rel=1e-4)


@pytest.mark.parametrize(
    "change", [{}, {"schedule": "zb-v", "num_devices": 2, "counts": [2, 1, 2, 1]}]
)
def test_training_is_the_same_bit_for_bit(
    processes, folders, lines, held_out, tmp_path, change
):
    counts = change.pop("counts", [2, 4])
    plan = make_plan(folders["gpt2"], GPT2, counts, **change)
    found = []
    for name, evaluation in (
        ("without", {}),
        ("with", {"eval_data": str(held_out), "eval_every": 1}),
    ):
        options = RunOptions(
            output_dir=tmp_path / name, data=str(lines), lr=1e-2, steps=4, **evaluation
        )
        run_job(processes, plan, options, tmp_path / f"{name}-work")
        losses = [
            replace(x, step_s=0.0, tokens_per_s=0.0, eval_loss=None)
            for x in load_metrics(options.output_dir)
        ]
        found.append((losses, saved_state(options.output_dir)))
    (losses, state), (others, other_state) = found
    assert losses == others
    assert all(torch.equal(state[key], other_state[key]) for key in state)


def test_what_cannot_be_evaluated_is_found_before_the_first_step(
    folders, lines, tmp_path
):
    plan = make_plan(folders["llama"], LLAMA, [3, 5])
    empty = tmp_path / "empty.jsonl"
    empty.write_text('{"input_ids": [1, 2], "labels": [-100, -100]}\n')
    work_dir = tmp_path / "work"
    work_dir.mkdir()
    for path, match in ((empty, "no target token"), (tmp_path / "none", "none")):
        options = RunOptions(
            output_dir=tmp_path / "run", data=str(lines), eval_data=str(path)
        )
        with pytest.raises(DataError, match=match):
            prepare_job(plan, options, work_dir)


def test_every_needs_something_to_evaluate(tmp_path):
    with pytest.raises(WishError, match="--eval-every 5 needs --eval-data"):
        RunOptions(output_dir=tmp_path, eval_every=5)
    with pytest.raises(WishError, match="--eval-every is 0"):
        RunOptions(output_dir=tmp_path, eval_data="builtin", eval_every=0)


@pytest.mark.parametrize(
    ("counts", "change"), [([3, 5], {}), ([2, 2, 3, 1], {"schedule": "zb-v"})]
)
def test_it_takes_no_more_memory_than_training(
    processes, folders, lines, held_out, tmp_path, counts, change
):
    plan = make_plan(folders["llama"], LLAMA, counts, num_devices=2, **change)
    options = RunOptions(
        output_dir=tmp_path / "run", data=str(lines), eval_data=str(held_out), steps=1
    )
    work_dir = tmp_path / "work"
    work_dir.mkdir()
    job_path = prepare_job(plan, options, work_dir).save()
    for training, evaluation, left in processes.call(_peaks, job_path, 2):
        assert evaluation <= training
        assert left <= 64  # a number or two, no tensor of the model


def _peaks(job_path, _):
    """Peak bytes of a step and of an evaluation, and what the latter leaves."""
    from planner.measure.live_bytes import LiveBytes, all_tensors
    from planner.runtime.job import load_job
    from planner.runtime.trainer import DeviceTrainer

    job = load_job(job_path)
    rows, held_out = job.sequences(), job.evaluation()
    trainer = DeviceTrainer(job, torch.device("cpu"))
    batch = rows.batch(torch.arange(4), 4)
    trainer.step(1, batch, 1e-3, rows.has_padding)
    data = [*rows.tensors().values(), *held_out.tensors().values()]
    with LiveBytes(all_tensors(ignore=data)) as training:
        trainer.step(2, batch, 1e-3, rows.has_padding)
    with LiveBytes(all_tensors(ignore=data)) as evaluating:
        before = evaluating.current_bytes
        trainer.evaluate(held_out)
    return (
        training.peak_bytes,
        evaluating.peak_bytes,
        max(evaluating.current_bytes - before, 0),
    )
