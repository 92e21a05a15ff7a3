"""Processes are started, and a failure of one of them is told as it was."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from model_folders import llama_config, save_model
from plan_maker import make_plan

from planner import artifact
from planner.errors import RunError
from planner.run_record import load_metrics, load_run
from planner.runtime import RunOptions, run_plan
from planner.runtime.checkpoint_folder import complete_checkpoints

PLANNER = [sys.executable, "-m", "planner"]
LAYERS = ["embedding", *(f"model.layers.{i}" for i in range(6)), "head"]


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    folder = save_model(llama_config(), tmp_path_factory.mktemp("model") / "tiny")
    return make_plan(
        folder, LAYERS, [2, 2, 3, 1], schedule="zb-v", num_devices=2, seq_len=32
    )


def test_a_plan_starts_its_own_processes(plan, tmp_path, monkeypatch):
    aside = tmp_path / "aside"
    aside.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(aside))
    record = run_plan(plan, RunOptions(output_dir=tmp_path / "run", steps=2))
    assert record.status == "finished"
    assert len(load_metrics(tmp_path / "run")) == 2
    assert not list(aside.iterdir()), "temporary folders are removed"


def test_a_loss_that_is_not_a_number_stops_the_run(plan, tmp_path):
    options = RunOptions(
        output_dir=tmp_path / "run", steps=5, lr=1e30, max_grad_norm=0.0
    )
    with pytest.raises(RunError, match=r"stages \d \(.*\) failed: .*the loss of step"):
        run_plan(plan, options)


@pytest.fixture
def long_run(plan, tmp_path):
    """A run that has done two steps of many, its folder and its stderr."""
    path = tmp_path / "plan.json"
    artifact.save(plan, path)
    command = [*PLANNER, "run", str(path), "--steps", "100000", "--no-check"]
    run_dir, stderr_path = tmp_path / "run", tmp_path / "stderr"
    with stderr_path.open("w") as stderr:
        run = subprocess.Popen(
            [*command, "--output-dir", str(run_dir)],
            stderr=stderr,
            cwd=tmp_path,
            start_new_session=True,
        )
    try:
        _wait_until(lambda: run.poll() is not None or _num_steps(run_dir) >= 2)
        assert run.poll() is None, stderr_path.read_text()
        yield run, stderr_path
    finally:
        run.kill()
        run.wait(30)


def test_a_killed_process_ends_the_others_and_is_named(long_run):
    run, stderr_path = long_run
    children = _children(run.pid)
    os.kill(children[1], signal.SIGKILL)
    assert run.wait(30) == 1
    last = stderr_path.read_text().splitlines()[-1]
    assert last.startswith("error: stages ")
    assert "were killed by SIGKILL" in last
    assert "model.layers." in last
    assert not any(Path(f"/proc/{child}").exists() for child in children)


def test_a_run_that_is_asked_to_stop_saves_and_says_how_to_go_on(long_run):
    run, stderr_path = long_run
    children = _children(run.pid)
    # As a terminal does: all of its processes get the signal.
    os.killpg(run.pid, signal.SIGINT)
    assert run.wait(60) == 128 + signal.SIGINT
    *before, last = stderr_path.read_text().splitlines()
    run_dir = stderr_path.with_name("run")
    (saved,) = complete_checkpoints(run_dir)
    assert last == (
        f"error: stopped by SIGINT, saved in {saved}; go on with: "
        f"planner run --resume {run_dir}"
    )
    assert [line for line in before if not line.startswith("step ")] == []
    assert load_run(run_dir).status == "stopped"
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    done = int(saved.name.removeprefix("step-"))
    assert len(load_metrics(run_dir)) == done
    again = subprocess.run(
        [*PLANNER, "run", "--resume", str(run_dir), "--steps", str(done + 1)],
        cwd=run_dir.parent,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert again.returncode == 0, again.stderr
    assert f"going on after step {done} of {done + 1}" in again.stderr
    assert [x.step for x in load_metrics(run_dir)] == [*range(1, done + 2)]


@pytest.mark.parametrize("first", ["the one that started them", "the others"])
def test_a_sigterm_to_all_processes_saves_too(long_run, first):
    run, stderr_path = long_run
    children = _children(run.pid)
    pids = [run.pid, *children] if first.endswith("them") else [*children, run.pid]
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    assert run.wait(60) == 128 + signal.SIGTERM
    run_dir = stderr_path.with_name("run")
    (saved,) = complete_checkpoints(run_dir)
    last = stderr_path.read_text().splitlines()[-1]
    assert last.startswith(f"error: stopped by SIGTERM, saved in {saved}; go on with: ")
    assert load_run(run_dir).status == "stopped"
    assert not any(Path(f"/proc/{child}").exists() for child in children)


def test_a_sigterm_to_one_process_alone_ends_the_run(long_run):
    run, stderr_path = long_run
    children = _children(run.pid)
    os.kill(children[1], signal.SIGTERM)
    assert run.wait(30) == 1
    assert stderr_path.read_text().splitlines()[-1].startswith("error: stages ")
    assert not any(Path(f"/proc/{child}").exists() for child in children)


def test_processes_do_not_outlive_the_one_that_started_them(long_run):
    run, _ = long_run
    children = _children(run.pid)
    run.kill()
    _wait_until(lambda: not any(Path(f"/proc/{x}").exists() for x in children), 30)


def test_a_second_signal_ends_all_processes_at_once(long_run):
    run, stderr_path = long_run
    children = _children(run.pid)
    # They cannot save while they stand still.
    os.kill(children[0], signal.SIGSTOP)
    os.kill(run.pid, signal.SIGINT)
    time.sleep(0.5)
    os.kill(run.pid, signal.SIGINT)
    assert run.wait(30) == 130
    assert stderr_path.read_text().splitlines()[-1] == "interrupted"
    assert not any(Path(f"/proc/{child}").exists() for child in children)


def _num_steps(run_dir):
    path = run_dir / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def _wait_until(happened, timeout_s=120):
    end_s = time.monotonic() + timeout_s
    while not happened():
        assert time.monotonic() < end_s, "nothing happened"
        time.sleep(0.2)


def _children(pid):
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sorted(map(int, children))
