"""A job is checked and written down before any process starts."""

from dataclasses import replace

import pytest
import torch
from model_folders import llama_config, save_model
from plan_maker import make_plan

from planner.errors import ArtifactError, ModelError, RunError, WishError
from planner.runtime.job import load_job, prepare_job
from planner.runtime.options import RunOptions

LLAMA = ["embedding", "model.layers.0", "model.layers.1", "head"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "llama"
    return save_model(llama_config(num_hidden_layers=2), path)


@pytest.fixture
def bare_folder(folder, tmp_path):
    """The same model, described but without weights."""
    path = tmp_path / "bare"
    path.mkdir()
    (path / "config.json").write_bytes((folder / "config.json").read_bytes())
    return path


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    ids = [f"[{', '.join(str(row + i) for i in range(16))}]" for row in range(10)]
    path.write_text("".join(f'{{"input_ids": {x}}}\n' for x in ids))
    return path


def prepared(plan, tmp_path, rows, **settings):
    options = RunOptions(output_dir=tmp_path / "run", data=str(rows), **settings)
    return prepare_job(plan, options, tmp_path)


def test_every_process_reads_what_was_prepared(folder, tmp_path, rows):
    job = prepared(make_plan(folder, LLAMA, [2, 2]), tmp_path, rows, lr=0.5, steps=7)
    read = load_job(job.save())
    assert read == job
    assert read.run_options() == RunOptions(
        output_dir=tmp_path / "run", data=str(rows), lr=0.5, steps=7
    )
    sequences = read.sequences()
    assert sequences.input_ids.tolist()[3] == list(range(3, 19))
    assert len(sequences) == 10
    assert not sequences.has_padding
    assert sequences.source == str(rows)


def test_epochs_are_counted_in_steps(folder, tmp_path, rows):
    plan = make_plan(folder, LLAMA, [2, 2])
    # Ten rows are two steps of four sequences, and one that is filled up.
    assert prepared(plan, tmp_path, rows, epochs=3).num_steps == 3 * 3
    assert prepared(plan, tmp_path, rows, steps=5).num_steps == 5
    assert prepared(plan, tmp_path, rows).num_steps == 10


@pytest.mark.parametrize(
    ("init", "expected"), [(None, True), ("pretrained", True), ("random", False)]
)
def test_weights_are_loaded_unless_told_otherwise(
    folder, tmp_path, rows, init, expected
):
    plan = make_plan(folder, LLAMA, [2, 2])
    assert prepared(plan, tmp_path, rows, init=init).pretrained is expected


def test_a_model_without_weights_is_trained_from_random_ones(
    bare_folder, tmp_path, rows
):
    plan = make_plan(bare_folder, LLAMA, [2, 2])
    assert not prepared(plan, tmp_path, rows).pretrained
    with pytest.raises(
        ModelError, match=r"no weights in safetensors; .* --init random"
    ):
        prepared(plan, tmp_path, rows, init="pretrained")


def test_a_plan_of_another_model_is_refused(folder, tmp_path, rows):
    names = ["embedding", "model.layers.0", "model.layers.9", "head"]
    with pytest.raises(ArtifactError, match=r"layer 2 is 'model.layers.9' in the plan"):
        prepared(make_plan(folder, names, [2, 2]), tmp_path, rows)


@pytest.mark.parametrize(
    ("actions", "complaint"),
    [
        ((("0B0", "0F0"), ("1F0", "1B0")), "waits for ever before 0B0"),
        ((("0F0", "0B0", "1B0"), ("1F0",)), "stage 1 is on devices 0 and 1"),
        ((("0F0", "0B0"), ("1F0", "1B0"), ()), "device 2 of the plan has no stage"),
        ((("0F0", "0B0"), ("1F0", "1B0"), ("2F0", "2B0")), "2F0 is of stage 2, but 2"),
        ((("0F0", "0B0"), ("1F0", "1I0")), "stage 1 "),
    ],
)
def test_an_order_that_cannot_run_is_refused_in_one_line(
    folder, tmp_path, rows, actions, complaint
):
    plan = make_plan(folder, LLAMA, [2, 2], num_microbatches=1)
    schedule = replace(plan.schedule, actions=actions)
    with pytest.raises(ArtifactError, match=complaint) as raised:
        prepared(replace(plan, schedule=schedule), tmp_path, rows)
    assert "\n" not in str(raised.value)


def test_an_optimizer_that_cannot_run_is_refused(folder, tmp_path, rows):
    plan = make_plan(folder, LLAMA, [2, 2], optimizer="lion")
    with pytest.raises(WishError, match="'lion' cannot be run"):
        prepared(plan, tmp_path, rows)


def test_a_plan_for_cards_needs_cards(folder, tmp_path, rows, monkeypatch):
    plan = replace(make_plan(folder, LLAMA, [2, 2]), device_type="cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RunError, match=r"has none that torch can use; .* --device cpu"):
        prepared(plan, tmp_path, rows)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(RunError, match="needs 2 cards, this machine has 1"):
        prepared(plan, tmp_path, rows)
    monkeypatch.setattr(torch.distributed, "is_torchelastic_launched", lambda: True)
    assert prepared(plan, tmp_path, rows).plan == plan, "the others are elsewhere"


def test_as_many_cards_as_devices_are_needed(folder, tmp_path, rows, monkeypatch):
    order = ("0F0 2F0 2B0 0B0", "1F0 1B0")
    plan = make_plan(folder, LLAMA, [1, 2, 1], actions=order, num_microbatches=1)
    plan = replace(plan, device_type="cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert prepared(plan, tmp_path, rows).plan == plan


def test_a_job_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(ArtifactError, match="cannot read the job"):
        load_job(tmp_path / "job.json")
