"""`planner solve --calibrate`, from a recorded run; a real one is in tests/runtime."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner import artifact
from planner.cards import Cluster, Device, parse_link
from planner.cli import main
from planner.model_profile import (
    LayerProfile,
    ModelInfo,
    ModelProfile,
    ProfiledDevice,
    load_profile,
    sha256_of,
)
from planner.plan import ProfileRef, load_plan
from planner.plan_profile import check_profile
from planner.run_record import (
    Measured,
    MeasuredSpan,
    MeasuredStage,
    RunRecord,
    StepMetrics,
)
from planner.solve import Wishes, best_plan, judge_again

PROFILE = ModelProfile(
    model=ModelInfo(id="tiny"),
    device=ProfiledDevice(name="rtx3090", memory_bytes=10**9),
    dtype="float32",
    seq_len=8,
    layers=tuple(
        LayerProfile(
            name=f"layer.{i}",
            num_parameters=1000,
            forward_s=0.01,
            backward_s=0.02,
            activation_bytes=1000,
            output_bytes=100,
        )
        for i in range(6)
    ),
)
CARDS = Cluster(
    devices=tuple(Device(name=f"rtx3090:{i}", memory_bytes=10**9) for i in range(2)),
    links=(parse_link("free"),),
)
NAME = "plan.calibrated-profile.json"


def recorded(plan, times):
    """A run whose stage 0 took `times` times as long; nothing else counts."""
    timeline = judge_again(plan, PROFILE, CARDS).timeline

    def stage(index, factor):
        spans = [
            MeasuredSpan(action=str(s.action), start_s=s.start_s, end_s=s.end_s)
            for s in timeline.spans
            if s.action.stage == index
        ]
        own = plan.stages[index].predicted
        return MeasuredStage(
            forward_s=own.forward_s * factor,
            backward_s=own.backward_s * factor,
            spans=tuple(spans),
        )

    stages = (stage(0, times), stage(1, 1.0))
    return Measured(step_s=1.5, tokens_per_s=1.0, stages=stages)


def write_run(folder, record, num_steps=4):
    artifact.save(record, folder / "run.json")
    line = StepMetrics(
        step=1, loss=1, grad_norm=1, lr=1, num_tokens=1, step_s=1, tokens_per_s=1
    )
    text = json.dumps(json.loads(artifact.to_json(line))) + "\n"
    (folder / "metrics.jsonl").write_text(text * num_steps, encoding="utf-8")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The current folder: a profile, and a run whose stage 0 was twice as slow."""
    monkeypatch.chdir(tmp_path)
    artifact.save(PROFILE, Path("tiny.json"))
    ref = ProfileRef(path="tiny.json", sha256=sha256_of(Path("tiny.json")))
    wishes = Wishes(schedule="1f1b", global_batch_size=20, optimizer="sgd")
    plan = best_plan(PROFILE, CARDS, wishes, profile_ref=ref)
    record = RunRecord(plan=plan, status="finished", measured=recorded(plan, 2.0))
    write_run(tmp_path / "run", record)
    return record


def call(*arguments: str):
    return CliRunner().invoke(main, ["solve", "--copies", "1", *arguments])


def the_error(result) -> str:
    assert result.exit_code == 1, result.output
    (line,) = [x for x in result.stderr.splitlines() if x.startswith("error: ")]
    assert result.stderr.endswith(line + "\n")
    assert result.stdout == ""
    assert not Path("plan.json").exists()
    assert not Path(NAME).exists()
    return line


def test_the_slow_stage_gets_fewer_layers_and_the_change_is_told():
    result = call("--calibrate", "run", "--schedule", "1f1b")
    assert result.exit_code == 0, result.output
    plan = load_plan(Path("plan.json"))
    assert [len(stage.layers) for stage in plan.stages] == [2, 4]
    rows = [line.split("  ") for line in result.stdout.splitlines()]
    moves = [row[-1].strip() for row in rows[2:7]]
    assert moves == [*["x 2.000"] * 2, *["x 1.000"] * 2, "nothing"]
    assert (
        "the plan changes: 1f1b with 3+3 layers becomes 1f1b with 2+4 layers\n"
        in result.stdout
    )
    assert result.stdout.endswith(
        f"wrote {NAME}, the calibrated profile\nwrote plan.json\n"
    )


def test_the_new_plan_refers_to_the_calibrated_profile():
    call("--calibrate", "run", "--schedule", "1f1b")
    plan, profile = load_plan(Path("plan.json")), load_profile(Path(NAME))
    assert plan.profile == ProfileRef(path=NAME, sha256=sha256_of(Path(NAME)))
    assert check_profile(plan) is None
    assert profile.calibrated_by == "run"
    assert [x.forward_s for x in profile.layers] == pytest.approx(
        [0.02] * 3 + [0.01] * 3
    )


def test_what_is_not_given_is_as_in_the_run():
    call("--calibrate", "run")
    plan = load_plan(Path("plan.json"))
    assert plan.num_devices == 2
    assert plan.global_batch_size == 20
    assert plan.optimizer.name == "sgd"
    assert {card.capacity_bytes for card in plan.cards} == {10**9}


def test_other_cards_and_another_profile_name_can_be_given():
    Path("tiny.json").rename("moved.json")
    options = ["--gpus", "3", "--reserve", "0", "--global-batch-size", "8"]
    result = call("moved.json", "--calibrate", "run", *options)
    assert result.exit_code == 0, result.output
    assert load_plan(Path("plan.json")).num_devices == 3
    assert "not compared: the run was of 20 sequences" in result.stdout


def test_json_is_the_plan_alone_on_stdout():
    result = call("--calibrate", "run", "--json")
    assert json.loads(result.stdout)["profile"]["path"] == NAME
    assert "calibration" in result.stderr


def test_the_calibrated_profile_lies_beside_the_plan():
    assert call("--calibrate", "run", "-o", "new/b.json").exit_code == 0
    plan = load_plan(Path("new/b.json"))
    assert plan.profile.path == "new/b.calibrated-profile.json"
    assert check_profile(plan) is None


def test_a_calibrated_profile_is_not_overwritten_by_its_own_calibration(folder):
    call("--calibrate", "run", "--schedule", "1f1b")
    ref = load_plan(Path("plan.json")).profile
    write_run(Path("again"), replace(folder, plan=replace(folder.plan, profile=ref)))
    before = Path(NAME).read_bytes()
    result = call("--calibrate", "again")
    assert result.exit_code == 1
    assert "name another plan with -o" in result.stderr
    assert Path(NAME).read_bytes() == before
    assert call("--calibrate", "again", "-o", "b.json").exit_code == 0


def test_nothing_is_written_when_nothing_fits():
    result = call("--calibrate", "run", "--gpus", "2", "--memory", "10kB")
    assert result.exit_code == 3, result.output
    assert not Path("plan.json").exists()
    assert not Path(NAME).exists()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--calibrate", "gone"], "gone is no run directory"),
        (["--calibrate", "tiny.json"], "tiny.json is no run directory"),
        (["--calibrate", "empty"], "cannot read the run record empty/run.json"),
        (["other.json", "--calibrate", "run"], "tiny.json, not from other.json"),
        (
            ["gone.json", "--calibrate", "run"],
            "cannot read the model profile gone.json",
        ),
        (["--calibrate", "run", "-o", "run"], "cannot write run: it is a folder"),
    ],
)
def test_a_mistake_is_one_line(arguments, problem):
    artifact.save(replace(PROFILE, created="2026-12-03"), Path("other.json"))
    Path("empty").mkdir()
    assert problem in the_error(call(*arguments))


def test_a_run_whose_profile_is_gone_says_how_to_name_it():
    Path("tiny.json").unlink()
    error = the_error(call("--calibrate", "run"))
    assert "made from tiny.json, which is not here" in error
    assert "planner solve PROFILE --calibrate RUN_DIR" in error


@pytest.mark.parametrize(
    ("changes", "num_steps", "problem"),
    [
        ({"status": "running", "measured": None}, 2, "ended after 2 steps"),
        ({}, 2, "at least 3"),
    ],
)
def test_a_run_that_says_too_little_is_refused(folder, changes, num_steps, problem):
    write_run(Path("run"), replace(folder, **changes), num_steps)
    assert problem in the_error(call("--calibrate", "run"))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "Missing option '--gpus'"),
        (["--calibrate", "run", "--memory", "1GiB"], "--memory without --gpus"),
    ],
)
def test_cards_left_open_are_bad_usage(arguments, problem):
    result = call(*arguments)
    assert result.exit_code == 2
    assert problem in result.stderr
