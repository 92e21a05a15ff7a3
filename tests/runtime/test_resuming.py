"""A run goes on where it may, and says what is different."""

from dataclasses import replace

import pytest
from plan_maker import make_plan

from planner.errors import ArtifactError, WishError
from planner.runtime.checkpoint_folder import (
    Progress,
    begin_checkpoint,
    complete_checkpoints,
    find_checkpoint,
    finish_checkpoint,
    partial_checkpoint,
)
from planner.runtime.options import RunOptions
from planner.runtime.resuming import find_beginning, options_of

PLAN = make_plan("model", ["embedding", "block", "head"], [1, 2])


def options(run_dir, **changes):
    return RunOptions(output_dir=run_dir, **changes)


def checkpoint(run_dir, step, *, keep=9, plan=PLAN, **changes):
    progress = Progress(
        step=step,
        num_steps=10,
        num_sequences=40,
        options=options(run_dir, **changes).as_record(),
    )
    aside = partial_checkpoint(run_dir, step)
    begin_checkpoint(aside)
    return finish_checkpoint(aside, plan, progress, keep)


def begun(tmp_path, *, plan=PLAN, num_steps=10, num_sequences=40, **changes):
    """Where a run begins that goes on from step 4, and what was said."""
    said = []
    path = checkpoint(tmp_path / "run", 4)
    chosen = options(tmp_path / "other", resume=path, **changes)
    found = find_beginning(plan, chosen, num_steps, num_sequences, said.append)
    return found, said


# --- folders --------------------------------------------------------------------


def test_only_what_was_written_to_its_end_counts(tmp_path):
    for step in (2, 10, 4):
        checkpoint(tmp_path, step)
    (tmp_path / "checkpoints" / "step-12").mkdir()
    begin_checkpoint(partial_checkpoint(tmp_path, 14))
    names = [path.name for path in complete_checkpoints(tmp_path)]
    assert names == ["step-2", "step-4", "step-10"]
    assert find_checkpoint(tmp_path).name == "step-10"
    assert find_checkpoint(tmp_path / "checkpoints" / "step-4").name == "step-4"


def test_the_newest_are_kept_and_nothing_else_is_left(tmp_path):
    for step in (1, 2, 3):
        checkpoint(tmp_path, step, keep=2)
    found = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert found == {"step-2", "step-3"}


def test_the_last_good_one_stays_until_the_next_is_complete(tmp_path):
    checkpoint(tmp_path, 1, keep=1)
    begin_checkpoint(partial_checkpoint(tmp_path, 2))
    assert find_checkpoint(tmp_path).name == "step-1"


@pytest.mark.parametrize("name", ["", "nowhere"])
def test_without_a_checkpoint_there_is_nothing_to_go_on_from(tmp_path, name):
    with pytest.raises(ArtifactError, match="name a run directory"):
        find_checkpoint(tmp_path / name)


# --- whether a run may go on ------------------------------------------------------


def test_without_the_wish_a_run_begins_at_the_start(tmp_path):
    assert find_beginning(PLAN, options(tmp_path), 10, 40, print) is None


def test_the_same_work_goes_on(tmp_path):
    found, said = begun(tmp_path)
    assert found.num_done == 4
    assert found.checkpoint.name == "step-4"
    (line,) = said
    assert line.startswith("going on after step 4 of 10, from ")


def test_what_changes_training_is_told(tmp_path):
    _, said = begun(tmp_path, lr=1e-3, lr_schedule="linear", num_steps=20)
    assert said[1:] == [
        "the learning rate ends after 20 steps from here on, and was to end after 10",
        "--lr is 0.001 from here on, and was 2e-05",
        "--lr-schedule is linear from here on, and was constant",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "bfloat16"}, "dtype: float32 there, bfloat16 in the plan"),
        ({"seq_len": 32}, "tokens of a sequence: 16 there, 32 in the plan"),
        (
            {"optimizer": replace(PLAN.optimizer, name="sgd")},
            "optimizer: adamw there, sgd in the plan",
        ),
    ],
)
def test_other_work_is_refused(tmp_path, change, message):
    with pytest.raises(WishError, match=message):
        begun(tmp_path, plan=replace(PLAN, **change))


def test_another_batch_is_refused(tmp_path):
    layers = ["embedding", "block", "head"]
    other = make_plan("model", layers, [1, 2], num_microbatches=8)
    with pytest.raises(WishError, match=r"sequences of a step: 4 there, 8 in the plan"):
        begun(tmp_path, plan=other)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, "seed is 1, and was 0"),
        ({"shuffle": False}, "shuffle is False, and was True"),
        ({"num_sequences": 41}, "the data has 41 sequences, and had 40"),
        ({"num_steps": 4}, "give --steps above 4"),
    ],
)
def test_sequences_that_would_come_twice_or_never_are_refused(
    tmp_path, change, message
):
    with pytest.raises(WishError, match=message):
        begun(tmp_path, **change)


def test_in_its_own_directory_a_run_goes_on_at_its_end(tmp_path):
    older = checkpoint(tmp_path, 4)
    checkpoint(tmp_path, 6)
    with pytest.raises(WishError, match=r"has step-6 after step-4; go on from that"):
        find_beginning(PLAN, options(tmp_path, resume=older), 10, 40, print)


def test_options_are_known_but_for_what_belongs_to_the_call(tmp_path):
    before = options_of(checkpoint(tmp_path, 4, lr=0.5, init="random"))
    assert before["lr"] == 0.5
    assert not {"output_dir", "resume", "init"} & before.keys()
