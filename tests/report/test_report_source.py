import json
from dataclasses import replace

import pytest
from report_samples import (
    make_measured,
    make_metrics,
    make_plan,
    make_v_plan,
    write_run,
)

from planner.artifact import save
from planner.errors import ArtifactError
from planner.report.source import read_source


def test_a_plan_alone_has_no_run(tmp_path):
    plan = make_plan()
    save(plan, tmp_path / "plan.json")
    source = read_source(tmp_path / "plan.json")
    assert (source.plan, source.measured, source.missing) == (plan, None, ())


@pytest.mark.parametrize("name", ["", "run.json"])
def test_a_run_is_named_by_its_folder_or_its_record(tmp_path, name):
    plan = make_plan()
    measured = make_measured(plan)
    write_run(tmp_path, plan, measured=measured, metrics=make_metrics(3))
    source = read_source(tmp_path / name)
    assert source.plan == plan
    assert source.measured == measured
    assert [entry.step for entry in source.metrics] == [1, 2, 3]
    assert source.missing == ()


def test_a_run_that_ended_early_says_what_is_missing(tmp_path):
    source = read_source(write_run(tmp_path, make_plan(), metrics=make_metrics(1)))
    (sentence,) = source.missing
    assert "has not finished (1 step recorded)" in sentence
    assert "--resume" in sentence


def test_a_torn_last_line_is_left_out(tmp_path):
    run_dir = write_run(tmp_path, make_plan(), metrics=make_metrics(3))
    path = run_dir / "metrics.jsonl"
    path.write_text(path.read_text()[:-20])
    assert [entry.step for entry in read_source(run_dir).metrics] == [1, 2]


def test_a_broken_line_before_the_last_costs_only_the_curves(tmp_path):
    plan = make_plan()
    run_dir = write_run(tmp_path, plan, measured=make_measured(plan))
    (run_dir / "metrics.jsonl").write_text("{\n{}\n")
    source = read_source(run_dir)
    assert source.measured
    (sentence,) = source.missing
    assert sentence.startswith("No training curves: ")
    assert "metrics.jsonl line 1" in sentence


def test_a_run_without_spans_says_that_its_timeline_is_missing(tmp_path):
    plan = make_plan()
    measured = make_measured(plan, with_spans=False)
    run_dir = write_run(tmp_path, plan, measured=measured, metrics=make_metrics())
    (sentence,) = read_source(run_dir).missing
    assert sentence.startswith("No measured timeline")


def test_a_missing_file_is_an_error_with_a_next_step(tmp_path):
    with pytest.raises(ArtifactError, match=r"nowhere does not exist; name a plan"):
        read_source(tmp_path / "nowhere")


def test_a_folder_that_is_no_run_is_an_error_with_a_next_step(tmp_path):
    with pytest.raises(ArtifactError, match=r"has no run\.json.*name the one that"):
        read_source(tmp_path)


def test_a_profile_is_not_a_plan(tmp_path):
    (tmp_path / "profile.json").write_text('{"layers": [{"name": "a"}]}')
    with pytest.raises(ArtifactError, match=r"profile\.json is not a valid plan"):
        read_source(tmp_path / "profile.json")


def test_a_record_of_other_stages_than_its_plan_is_refused(tmp_path):
    plan = make_plan()
    write_run(tmp_path, plan, measured=make_measured(plan))
    record = json.loads((tmp_path / "run.json").read_text())
    del record["measured"]["stages"][1]
    (tmp_path / "run.json").write_text(json.dumps(record))
    with pytest.raises(ArtifactError, match="measured 1 stages but its plan has 2"):
        read_source(tmp_path)


def test_a_record_of_other_cards_than_its_plan_is_refused(tmp_path):
    plan = make_v_plan()
    measured = make_measured(plan, with_devices=True)
    write_run(tmp_path, plan, measured=replace(measured, devices=measured.devices[:1]))
    with pytest.raises(ArtifactError, match="measured 1 cards but its plan has 2"):
        read_source(tmp_path)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ((("0F0", "forward"), ("1F0",)), "'forward' is not an action.*planner solve"),
        ((("0F0", "0B0"),), "1 row of actions.* 2 stages are on cards 0, 1;"),
        ((("0F0", "1F0"), ()), "2 rows of actions.* 2 stages are on cards 0;"),
    ],
)
def test_a_plan_that_does_not_place_its_stages_is_refused(tmp_path, actions, message):
    plan = make_plan()
    schedule = replace(plan.schedule, actions=actions)
    save(replace(plan, schedule=schedule), tmp_path / "plan.json")
    with pytest.raises(ArtifactError, match=message):
        read_source(tmp_path / "plan.json")
