"""Under torchrun the first process prepares, and the others wait for it."""

import json
import subprocess
import sys

import pytest
from model_folders import llama_config, save_model
from plan_maker import make_plan

from planner import artifact
from planner.errors import WishError
from planner.run_record import load_metrics, load_run
from planner.runtime.joining import check_world_size
from planner.runtime.options import RunOptions

LAYERS = ["embedding", *(f"model.layers.{i}" for i in range(6)), "head"]
TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]

# Starts its second process only when the first one has prepared everything and
# has begun to write, as on a slow machine.
LATE = """
import os, sys, time
from pathlib import Path

run_dir = Path(sys.argv[sys.argv.index("--output-dir") + 1])
if os.environ["RANK"] == "1":
    while not run_dir.exists():
        time.sleep(0.1)
    (run_dir / "run.json").write_text("{}")
from planner.cli import main

main()
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    folder = save_model(llama_config(), tmp_path_factory.mktemp("model") / "tiny")
    return make_plan(folder, LAYERS, [4, 4], seq_len=32)


@pytest.fixture
def torchrun(plan, tmp_path):
    """Runs the plan with two processes that torchrun starts."""
    artifact.save(plan, tmp_path / "plan.json")

    def start(*options, program=("-m", "planner")):
        arguments = ["run", "plan.json", "--output-dir", "run", "--json", *options]
        return subprocess.run(
            [sys.executable, *TORCHRUN, *program, *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=200,
        )

    return start


def test_a_late_process_joins_a_run_that_has_begun_to_write(torchrun, tmp_path):
    (tmp_path / "late.py").write_text(LATE)
    ended = torchrun("--steps", "2", program=["late.py"])
    assert ended.returncode == 0, ended.stderr
    assert len(load_metrics(tmp_path / "run")) == 2
    # Said once, not once a process.
    assert json.loads(ended.stdout)["status"] == "finished"
    assert load_run(tmp_path / "run").status == "finished"
    assert {path.name for path in tmp_path.iterdir()} == {"plan.json", "late.py", "run"}


def test_what_is_wrong_is_said_by_one_process(torchrun, tmp_path):
    ended = torchrun("--data", "missing.txt")
    assert ended.returncode == 1
    errors = [x for x in ended.stderr.splitlines() if x.startswith("error:")]
    assert len(errors) == 1
    assert "missing.txt" in errors[0]
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_a_stage_that_fails_is_named(torchrun):
    ended = torchrun("--steps", "5", "--lr", "1e30", "--max-grad-norm", "0")
    assert ended.returncode == 1
    errors = [x for x in ended.stderr.splitlines() if x.startswith("error:")]
    assert errors
    assert all("failed: RunError: the loss of step" in error for error in errors)


def test_as_many_processes_as_devices_are_needed(plan):
    check_world_size(plan, 2)
    with pytest.raises(WishError, match=r"started 3 processes.* for 2 devices"):
        check_world_size(plan, 3)
    order = ("0F0 1F0 1B0 0B0",)
    both = make_plan("tiny", LAYERS, [4, 4], actions=order, num_microbatches=1)
    with pytest.raises(WishError, match=r"started 2 processes.* for 1 device;"):
        check_world_size(both, 2)


@pytest.mark.parametrize(
    ("environment", "joins", "leads"),
    [
        ({}, False, True),
        ({"RANK": "1"}, False, True),
        ({"RANK": "0", "TORCHELASTIC_RUN_ID": "x"}, True, True),
        ({"RANK": "1", "TORCHELASTIC_RUN_ID": "x"}, True, False),
    ],
)
def test_the_first_process_speaks_for_all(
    environment, joins, leads, monkeypatch, tmp_path
):
    for name in ("RANK", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    options = RunOptions(output_dir=tmp_path)
    assert (options.joins, options.leads) == (joins, leads)
