"""Runs that say nothing about a profile are refused, each in one sentence."""

from dataclasses import replace
from pathlib import Path

import pytest
from calibrate_samples import make_cluster, make_plan, make_profile, make_run

from planner.calibrate import check_run
from planner.errors import ArtifactError
from planner.model_profile import ModelInfo
from planner.run_record import RunRecord

PROFILE, CARDS = make_profile(0), make_cluster()
PLAN = make_plan(PROFILE, CARDS, "1f1b", (2, 3, 2))
SHA256 = PLAN.profile.sha256
MEASURED = make_run(PLAN, PROFILE, CARDS)
RECORD = RunRecord(plan=PLAN, status="finished", measured=MEASURED)


def check(record=RECORD, num_steps=3, profile=PROFILE, sha256=SHA256, path="tiny.json"):
    return check_run(
        record,
        num_steps,
        profile,
        run_dir=Path("runs/a"),
        path=Path(path),
        sha256=sha256,
    )


def test_a_finished_run_of_this_profile_is_taken():
    assert check() is MEASURED


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"model": ModelInfo(id="other")}, "model is other, the plan has tiny"),
        ({"dtype": "bfloat16"}, "dtype is bfloat16, the plan has float32"),
        ({"seq_len": 16}, "seq_len is 16, the plan has 8"),
        (
            {"microbatch_size": 4, "microbatches": {}},
            "microbatch_size is 4, the plan has 1",
        ),
    ],
)
def test_a_run_of_other_work_is_refused_with_the_difference(changes, difference):
    with pytest.raises(ArtifactError, match=difference) as caught:
        check(profile=replace(PROFILE, **changes), sha256="1", path="other.json")
    assert str(caught.value).startswith(
        "runs/a followed a plan of another profile than other.json: "
    )
    assert str(caught.value).endswith("; calibrate tiny.json")


def test_a_run_of_another_profile_of_the_same_work_is_refused():
    with pytest.raises(ArtifactError, match=r"made from tiny\.json, not from b\.json"):
        check(sha256="1", path="b.json")


def test_a_profile_that_has_changed_since_is_refused():
    with pytest.raises(ArtifactError, match=r"tiny\.json has changed since the plan"):
        check(sha256="1")


def test_a_run_on_another_kind_of_card_is_refused():
    first = replace(PLAN.stages[0], device="rtx4090:0")
    plan = replace(PLAN, stages=(first, *PLAN.stages[1:]))
    with pytest.raises(ArtifactError, match="ran on rtx4090, but the profile is for"):
        check(replace(RECORD, plan=plan))


def test_a_run_on_processes_is_refused_for_the_profile_of_a_card():
    stages = [replace(s, device=f"cpu:{s.index}") for s in PLAN.stages]
    plan = replace(PLAN, stages=tuple(stages), device_type="cpu")
    with pytest.raises(ArtifactError, match="ran on cpu, but the profile is for rtx"):
        check(replace(RECORD, plan=plan))


def test_the_same_card_by_another_name_is_the_same():
    device = replace(PROFILE.device, name="NVIDIA GeForce RTX 3090")
    assert check(profile=replace(PROFILE, device=device)) is MEASURED


def test_a_run_that_did_not_finish_is_refused_with_its_steps():
    record = replace(RECORD, status="running", measured=None)
    with pytest.raises(ArtifactError, match=r"runs/a ended after 5 steps, before"):
        check(record, num_steps=5)


@pytest.mark.parametrize(("num_steps", "words"), [(1, "1 step"), (2, "2 steps")])
def test_a_run_that_is_too_short_is_refused(num_steps, words):
    with pytest.raises(ArtifactError, match=f"made {words}, .* at least 3"):
        check(num_steps=num_steps)


def test_a_record_that_lacks_an_action_of_its_plan_is_refused():
    last = replace(MEASURED.stages[2], spans=MEASURED.stages[2].spans[1:])
    measured = replace(MEASURED, stages=(*MEASURED.stages[:2], last))
    with pytest.raises(ArtifactError, match=r"times of 35 actions .* the 36 actions"):
        check(replace(RECORD, measured=measured))
