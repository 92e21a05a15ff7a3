"""A run whose checkpoints have no room on the disk ends before it begins."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from plan_maker import make_plan

from planner.errors import RunError
from planner.plan import MemoryBreakdown
from planner.runtime import room
from planner.runtime.options import RunOptions
from planner.runtime.room import check_room

LAYERS = ["embedding", "model.layers.0", "model.layers.1", "head"]
ITEMS = {"weights": 10_000, "optimizer": 30_000, "activations": 5_000}


def plan_with_bytes():
    bare = make_plan("tiny", LAYERS, [2, 2])
    memory = MemoryBreakdown(**ITEMS, total=sum(ITEMS.values()))
    stages = [
        replace(stage, predicted=replace(stage.predicted, memory_bytes=memory))
        for stage in bare.stages
    ]
    return replace(bare, stages=tuple(stages))


PLAN = plan_with_bytes()
MODEL = sum(card.memory_bytes.weights for card in PLAN.cards)
CHECKPOINT = MODEL + sum(card.memory_bytes.optimizer for card in PLAN.cards)


class _Usage(NamedTuple):
    free: int


@pytest.fixture
def least_room(monkeypatch, tmp_path):
    """Tells with how many free bytes a run is just taken."""

    def accepted(free, options, num_steps):
        monkeypatch.setattr(room.shutil, "disk_usage", lambda _: _Usage(free))
        try:
            check_room(PLAN, options, num_steps)
        except RunError:
            return False
        return True

    def find(num_steps, num_there=0, **settings):
        for step in range(1, num_there + 1):
            folder = tmp_path / "run" / "checkpoints" / f"step-{step}"
            folder.mkdir(parents=True)
            (folder / "progress.json").touch()
        options = RunOptions(output_dir=tmp_path / "run", **settings)
        counts = (MODEL + n * CHECKPOINT for n in range(20))
        least = next(free for free in counts if accepted(free, options, num_steps))
        assert not accepted(least - 1, options, num_steps)
        return (least - MODEL) // CHECKPOINT

    return find


def test_weights_and_optimizer_states_are_what_counts():
    assert (MODEL, CHECKPOINT) == (20_000, 80_000)


@pytest.mark.parametrize(
    ("num_steps", "settings", "count"),
    [
        (100, {}, 1),  # at the end only
        (100, {"save_every": 10}, 3),  # two stay, the third is being written
        (100, {"save_every": 10, "keep": 4}, 5),
        (100, {"save_every": 60, "keep": 4}, 2),
        (0, {}, 1),
    ],
)
def test_as_many_checkpoints_count_as_are_there_at_once(
    least_room, num_steps, settings, count
):
    assert least_room(num_steps, **settings) == count


def test_what_is_there_already_needs_no_more_room(least_room):
    assert least_room(100, num_there=2, save_every=10) == 1


def test_the_refusal_has_the_numbers_and_what_helps(monkeypatch, tmp_path):
    monkeypatch.setattr(room.shutil, "disk_usage", lambda _: _Usage(0))
    options = RunOptions(output_dir=tmp_path / "run", save_every=1, keep=3)
    with pytest.raises(
        RunError, match=r"has 0 B of disk left.*: 4 checkpoints of .* a smaller --keep$"
    ):
        check_room(PLAN, options, 10)
    with pytest.raises(RunError, match=r"a checkpoint of .*another --output-dir$"):
        check_room(PLAN, RunOptions(output_dir=tmp_path / "run"), 10)


def test_the_disk_is_that_of_the_folder_that_exists(monkeypatch, tmp_path):
    asked = []
    real = shutil.disk_usage
    monkeypatch.setattr(
        room.shutil, "disk_usage", lambda path: asked.append(path) or real(path)
    )
    check_room(PLAN, RunOptions(output_dir=tmp_path / "a" / "b"), 1)
    assert asked == [Path(tmp_path)]
