"""The demo from end to end, and the folders it keeps its hands off."""

import json

import pytest
from transformers import AutoModelForCausalLM

from planner import demo
from planner.errors import ArtifactError
from planner.measure import sampling
from planner.model_profile import load_profile, sha256_of
from planner.plan import load_plan
from planner.run_record import load_metrics, load_run

FILES = {"model", "profile.json", "plan.json", "run", "report"}


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """A demo with fewer steps and measurements, and what it said."""
    folder = tmp_path_factory.mktemp("demo") / "out"
    lines = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "_NUM_STEPS", 8)
        patch.setattr(sampling, "_BUDGET_S", 0.3)
        demo.run_demo(folder, lines.append)
    return folder, lines


def test_every_command_leaves_its_artifact(played):
    folder, _ = played
    assert {path.name for path in folder.iterdir()} == FILES
    profile = load_profile(folder / "profile.json")
    plan = load_plan(folder / "plan.json")
    assert plan.profile.sha256 == sha256_of(folder / "profile.json")
    assert plan.layer_names == tuple(layer.name for layer in profile.layers)
    assert load_run(folder / "run").status == "finished"
    assert (folder / "report" / "report.html").stat().st_size > 10_000


def test_the_model_fits_on_four_cards_and_on_no_one_of_them(played):
    folder, _ = played
    plan = load_plan(folder / "plan.json")
    measured = load_run(folder / "run").measured
    assert plan.num_devices == 4
    states = plan.model.num_parameters * plan.optimizer.bytes_per_parameter
    for card, found in zip(plan.cards, measured.devices, strict=True):
        assert found.peak_bytes <= card.capacity_bytes < states


def test_the_predicted_memory_is_the_measured_one(played):
    folder, _ = played
    plan = load_plan(folder / "plan.json")
    measured = load_run(folder / "run").measured
    for card, found in zip(plan.cards, measured.devices, strict=True):
        assert card.memory_bytes.total == pytest.approx(found.peak_bytes, rel=0.05)


def test_it_learns_and_leaves_an_ordinary_model(played):
    folder, _ = played
    metrics = load_metrics(folder / "run")
    assert [line.step for line in metrics] == list(range(1, 9))
    assert metrics[0].loss == pytest.approx(5.6, abs=0.4), "about log(256)"
    assert metrics[-1].loss < metrics[0].loss - 1
    model, found = AutoModelForCausalLM.from_pretrained(
        folder / "run" / "model", output_loading_info=True
    )
    assert not found["missing_keys"]
    assert sum(p.numel() for p in model.parameters()) == (
        load_plan(folder / "plan.json").model.num_parameters
    )


def test_it_ends_with_what_happened_and_what_to_do_next(played):
    folder, lines = played
    heads = [line.split()[0] for line in lines[-5:]]
    assert heads == ["Fits", "Speed", "Learned", "Look", "Next"]
    assert str(folder / "run" / "model") in lines[-3]
    assert str(folder / "report" / "report.html") in lines[-2]
    assert lines[0] == f"reading {folder / 'model'}"


def test_an_earlier_demo_is_made_anew(played, monkeypatch):
    folder, _ = played
    monkeypatch.setattr(demo.shutil, "rmtree", lambda path, **_: gone.append(path))
    gone = []
    demo._make_folder(folder)
    assert gone == [folder]


@pytest.mark.parametrize(
    "names",
    [
        ["thesis.tex"],
        ["model", "thesis.tex"],
        ["profile.json", "plan.json", "run"],
        ["run"],
    ],
    ids=",".join,
)
def test_a_folder_that_holds_something_else_is_left_alone(tmp_path, names):
    for name in names:
        (tmp_path / name).write_text("months of work")
    with pytest.raises(ArtifactError, match="holds something else; choose another"):
        demo.run_demo(tmp_path, lambda line: None)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def test_someone_elses_model_is_left_alone(tmp_path):
    config = tmp_path / "model" / "config.json"
    config.parent.mkdir()
    config.write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(ArtifactError, match="holds something else"):
        demo.run_demo(tmp_path, lambda line: None)
    assert config.exists()


def test_a_file_is_left_alone(tmp_path):
    path = tmp_path / "notes"
    path.write_text("months of work")
    with pytest.raises(ArtifactError, match="notes holds something else"):
        demo.run_demo(path, lambda line: None)
    assert path.read_text() == "months of work"


def test_this_process_may_use_a_core():
    assert demo.num_cores() >= 1
