"""A profile calibrated by a real run predicts that run, and plans go on from it."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from model_folders import llama_config, save_model
from runs import run_job

from planner import artifact
from planner.cli import main
from planner.model_profile import (
    LayerProfile,
    ModelInfo,
    ModelProfile,
    ProfiledDevice,
    load_profile,
)
from planner.plan import load_plan
from planner.plan_profile import check_profile
from planner.run_record import load_run
from planner.runtime import RunOptions

NAMES = ["embedding", *(f"model.layers.{i}" for i in range(6)), "head"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, processes):
    """Three steps on two processes after a plan from a profile of guesses."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("calibrated")
        patch.chdir(folder)
        model = save_model(llama_config(), Path("tiny"))
        device = ProfiledDevice(name="cpu", kind="measured", type="cpu")
        profile = ModelProfile(
            model=ModelInfo(id=str(model.absolute())),
            device=device,
            dtype="float32",
            seq_len=16,
            layers=tuple(
                LayerProfile(
                    name=name,
                    num_parameters=9000,
                    forward_s=0.5,
                    backward_s=1.0,
                    output_bytes=16 * 32 * 4,
                )
                for name in NAMES
            ),
        )
        artifact.save(profile, Path("guess.json"))
        options = ["--gpus", "2", "--memory", "1GiB", "--schedule", "1f1b"]
        call("solve", "guess.json", *options, "--layers-per-stage", "4,4")
        options = RunOptions(output_dir=folder / "run", steps=3)
        run_job(processes, load_plan(Path("plan.json")), options, folder / "work")
    return folder


def call(*arguments):
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def answer(folder):
    """What planning again with that run says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        cut = ["--schedule", "1f1b", "--layers-per-stage", "4,4"]
        return call("solve", "--calibrate", "run", "-o", "again.json", *cut)


def test_the_same_cut_is_now_predicted_as_it_was_measured(folder, answer):
    plan, run = load_plan(folder / "again.json"), load_run(folder / "run")
    assert "the plan stays as it was" in answer
    for stage, found in zip(plan.stages, run.measured.stages, strict=True):
        # The pause between two actions is in the prediction, but not in a span.
        pause_s = stage.predicted.forward_s - found.forward_s
        assert pause_s > -1e-9
        assert stage.predicted.backward_s == pytest.approx(found.backward_s + pause_s)
    slowest_s = max(stage.optimizer_s for stage in run.measured.stages)
    assert plan.predicted.optimizer_s == pytest.approx(slowest_s)
    assert all(link.origin == "measured" for link in plan.links)


def test_the_guess_of_the_step_is_given_up(folder, answer):
    plan, run = load_plan(folder / "again.json"), load_run(folder / "run")
    assert plan.predicted.step_s < run.plan.predicted.step_s / 5


def test_every_card_keeps_free_what_the_guess_left_out(folder, answer):
    plan, run = load_plan(folder / "again.json"), load_run(folder / "run")
    for card, found in zip(plan.cards, run.measured.devices, strict=True):
        assert card.memory_bytes.total >= found.peak_bytes


def test_the_plan_and_its_profile_are_whole(folder, answer, monkeypatch):
    monkeypatch.chdir(folder)
    plan = load_plan(Path("again.json"))
    profile = load_profile(Path("again.calibrated-profile.json"))
    assert plan.profile.path == "again.calibrated-profile.json"
    assert check_profile(plan) is None
    assert profile.calibrated_by == "run"
    call("solve", plan.profile.path, "--gpus", "2", "--memory", "1GiB", "-o", "c.json")
