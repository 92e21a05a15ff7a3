"""`planner compare`, as a newcomer uses it."""

import json

import pytest
from click.testing import CliRunner
from plan_samples import small_plan

from planner import artifact
from planner.cli import main
from planner.model_profile import LayerProfile, ModelInfo, ModelProfile, ProfiledDevice
from planner.units import GIB

PROFILE = ModelProfile(
    model=ModelInfo(id="tiny"),
    device=ProfiledDevice(name="rtx3090", memory_bytes=24 * GIB),
    dtype="float32",
    layers=tuple(
        LayerProfile(
            name=f"layer.{i}",
            num_parameters=1_000_000,
            forward_s=0.01,
            backward_s=0.02,
        )
        for i in range(6)
    ),
)
WAYS = {
    *("even layers", "less at the ends", "equal parameters", "equal time"),
    *("least bottleneck", "even layers in turn", "device map in turn"),
    *("ZeRO-3", "copy on every card", "single card"),
}


@pytest.fixture(autouse=True)
def profile(tmp_path, monkeypatch):
    """Commands find it where they are called."""
    monkeypatch.chdir(tmp_path)
    artifact.save(PROFILE, tmp_path / "tiny.json")


def call(*arguments):
    return CliRunner().invoke(main, ["compare", *arguments])


def test_a_profile_is_planned_and_compared_and_nothing_is_written(tmp_path):
    result = call("tiny.json", "--gpus", "2")
    assert result.exit_code == 0, result.output
    for name in ("this plan", *WAYS):
        assert f"\n{name} " in result.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.json"]


def test_a_plan_needs_no_search():
    assert (
        CliRunner().invoke(main, ["solve", "tiny.json", "--gpus", "2"]).exit_code == 0
    )
    from_plan = call("plan.json")
    assert from_plan.exit_code == 0, from_plan.output
    assert from_plan.stdout == call("tiny.json", "--gpus", "2").stdout


def test_json_is_alone_on_stdout():
    result = call(
        "tiny.json", "--gpus", "2", "--json", "--copies", "1", "--schedule", "1f1b"
    )
    answer = json.loads(result.stdout)
    assert answer["model"] == "tiny"
    assert answer["plan"]["layers_per_stage"] == [3, 3]
    assert answer["plan"]["status"] == "optimal"
    baselines = {entry["name"]: entry for entry in answer["baselines"]}
    assert set(baselines) == WAYS
    assert all(entry["fits"] and entry["judgement"] for entry in baselines.values())
    step_s = answer["plan"]["step_s"]
    assert set(answer["quicker"]) == {
        name for name, entry in baselines.items() if entry["step_s"] < 0.99 * step_s
    }
    assert "this plan" in result.stderr


def test_where_nothing_fits_the_other_ways_come_before_the_error():
    result = call("tiny.json", "--gpus", "2", "--memory", "1550MiB")
    assert result.exit_code == 3
    assert "none of these fits either" in result.stdout
    assert result.stderr.splitlines()[-1].startswith("error: ")
    as_json = call("tiny.json", "--gpus", "2", "--memory", "1550MiB", "--json")
    answer = json.loads(as_json.stdout)
    assert answer["plan"] is None
    assert answer["shortfall_bytes"] > 0
    assert {entry["name"] for entry in answer["baselines"]} == WAYS


def test_another_way_that_fits_is_told_where_no_plan_does(tmp_path):
    large = LayerProfile(name="large", num_parameters=60_000_000)
    rows = (large, *PROFILE.layers)
    uneven = ModelProfile(device=PROFILE.device, dtype="float32", layers=rows)
    artifact.save(uneven, tmp_path / "uneven.json")
    # The large layer needs 916 MiB beside a reserve of 1.5 GiB; ZeRO-3 shares it out.
    result = call("uneven.json", "--gpus", "6", "--memory", "2300MiB")
    assert result.exit_code == 3, result.output
    assert "no plan fits, but this does: ZeRO-3" in result.stdout
    assert "fits another way, which planner does not run: ZeRO-3 (" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "exit_code", "text"),
    [
        ([], 2, "Missing option '--gpus'"),
        (["tiny.json"], 2, "Missing option '--gpus'"),
        (["tiny.json", "--gpus", "0"], 1, "at least one card is needed"),
        (["tiny.json", "--gpus", "7", "--copies", "1"], 1, "use at most --gpus 6"),
        (["nowhere.json", "--gpus", "2"], 1, "cannot read the model profile"),
        (["old.json", "--gpus", "2"], 2, "--gpus with a plan: name its profile"),
        (["old.json", "--link", "free"], 2, "--link with a plan: name its profile"),
        (["broken.json"], 1, "broken.json is not a valid plan"),
    ],
)
def test_a_mistake_is_told_in_one_line(tmp_path, arguments, exit_code, text):
    artifact.save(small_plan(), tmp_path / "old.json")
    (tmp_path / "broken.json").write_text('{"stages": 3}')
    result = call(*arguments)
    assert result.exit_code == exit_code
    assert text in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.output


def test_a_plan_of_an_older_version_says_to_solve_again(tmp_path):
    artifact.save(small_plan(), tmp_path / "old.json")
    result = call("old.json")
    assert result.exit_code == 0
    assert result.stdout.endswith("solve again\n")
