import json
from dataclasses import replace

import pytest
from plan_samples import small_plan

from planner import artifact
from planner.errors import ArtifactError
from planner.plan import Baseline, MemoryBreakdown, Plan, StagePlan, load_plan
from planner.schedule.actions import format_actions, parse_action, parse_actions


def stage(index: int, first: int, last: int) -> StagePlan:
    names = tuple(f"layer.{i}" for i in range(first, last + 1))
    return StagePlan(
        index=index, device="a", first_layer=first, last_layer=last, layers=names
    )


def test_a_plan_reads_back_as_the_same_value(tmp_path):
    path = tmp_path / "plan.json"
    artifact.save(small_plan(), path)
    assert load_plan(path) == small_plan()


def test_ways_of_an_older_plan_are_read(tmp_path):
    raw = json.loads(artifact.to_json(small_plan()))
    raw["baselines"] = [
        {"name": "even layers", "layers_per_stage": [2, 1], "step_s": 2.0, "fits": True}
    ]
    (tmp_path / "plan.json").write_text(json.dumps(raw))
    (baseline,) = load_plan(tmp_path / "plan.json").baselines
    assert (baseline.missing_bytes, baseline.judgement) == (0, "")


def test_other_ways_are_quicker_only_if_they_fit_and_by_more_than_a_percent():
    entry = Baseline(name="a", layers_per_stage=(), step_s=0.5, fits=True)
    others = (
        replace(entry, name="much", step_s=0.6),
        replace(entry, name="too large", fits=False),
        replace(entry, name="hardly", step_s=0.995),
        replace(entry, name="most"),
    )
    plan = replace(small_plan(), baselines=others)
    assert [other.name for other in plan.quicker_baselines] == ["most", "much"]


def test_a_plan_knows_its_stages_and_layers():
    assert small_plan().num_stages == 2
    assert small_plan().layer_names == ("embed", "block", "head")


def test_stages_are_on_the_device_whose_row_names_them():
    schedule = replace(small_plan().schedule, actions=(("1F0", "1B0"), ("0F0", "0B0")))
    plan = replace(small_plan(), schedule=schedule)
    assert plan.num_devices == 2
    assert plan.device_of_stage == (1, 0)
    assert [stage.index for stage in plan.stages_of_device(0)] == [1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stages": ()}, "stages is empty"),
        ({"stages": (stage(0, 1, 2),)}, "begins at layer 1, not 0"),
        ({"stages": (stage(1, 0, 2),)}, r"stages\[0\] has index 1"),
        # A layer in no stage, or in two, would train another model.
        ({"stages": (stage(0, 0, 1), stage(1, 3, 4))}, "ends at layer 1 but stage 1"),
        ({"stages": (stage(0, 0, 1), stage(1, 1, 2))}, "ends at layer 1 but stage 1"),
        ({"global_batch_size": 3}, "are 2 sequences, not global_batch_size 3"),
    ],
)
def test_a_plan_that_contradicts_itself_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        small_plan(**changes)


def test_a_stage_that_contradicts_itself_is_refused():
    with pytest.raises(ValueError, match="names 1 layers but runs from 0 to 1"):
        replace(stage(0, 0, 1), layers=("a",))
    with pytest.raises(ValueError, match=r"recomputes \['b'\], not its own"):
        replace(stage(0, 0, 0), recompute=("b",))


def test_the_total_of_memory_is_the_sum_of_its_items():
    memory = MemoryBreakdown(weights=1, gradients=2, optimizer=3, total=6)
    assert sum(memory.items().values()) == memory.total
    with pytest.raises(ValueError, match="memory total 7 is not 6"):
        replace(memory, total=7)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"seq_len": 8', '"seq_len": 0', r"\$\.seq_len"),
        ('"step_s": 1.0', '"step_s": NaN', r"\$\.predicted\.step_s"),
        ('"status": "optimal"', '"status": "best"', r"\$\.solver\.status"),
        ('"last_layer": 2', '"last_layer": 3', r"\$\.stages\[1\]"),
        ('"global_batch_size": 2,', "", "global_batch_size"),
    ],
)
def test_a_damaged_plan_is_refused_by_field(old, new, message):
    text = artifact.to_json(small_plan())
    assert old in text
    with pytest.raises(ArtifactError, match=message):
        artifact.from_json(text.replace(old, new), Plan, source="plan.json")


def test_actions_read_back_as_they_were_written():
    rows = small_plan().schedule.actions
    assert format_actions(parse_actions(rows)) == rows


@pytest.mark.parametrize("text", ["", "F0", "0X0", "0F", "0F0 ", "-1F0"])
def test_what_is_no_action_is_refused(text):
    with pytest.raises(ValueError, match="is not an action such as 2F0"):
        parse_action(text)
