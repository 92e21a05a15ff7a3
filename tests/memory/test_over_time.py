"""Memory of an order: by hand, and whatever the sizes."""

import pytest
from hypothesis import given
from random_orders import rows_with_bytes, sizes

from planner.memory import (
    StageBytes,
    device_memory,
    memory_shares,
    peak_bytes,
    peak_states,
)
from planner.schedule.actions import parse_actions
from planner.schedule.named import num_in_flight, schedule_actions
from planner.simulate import StageTimes, simulate

STAGE = StageBytes(
    weights_bytes=1000,
    kept_bytes=100,
    held_bytes=40,
    forward_peak_bytes=130,
    backward_peak_bytes=20,
    first_backward_peak_bytes=20,
    input_grad_peak_bytes=30,
    weight_grad_peak_bytes=10,
    first_weight_grad_peak_bytes=10,
)


def row_of(text):
    return parse_actions((tuple(text.split()),))[0]


def test_the_level_of_every_action():
    memory = device_memory(row_of("0F0 0F1 0B0 0B1"), {0: STAGE}, reserve_bytes=5)
    assert memory.static.total == 1005
    assert [x - 1005 for x in memory.during_bytes] == [130, 230, 220, 120]
    assert [x - 1005 for x in memory.after_bytes] == [100, 200, 100, 0]
    assert str(memory.peak_action) == "0F1"


def test_the_peak_is_told_item_by_item():
    stage = StageBytes(
        weights_bytes=1,
        gradients_bytes=2,
        optimizer_bytes=3,
        input_bytes=4,
        output_bytes=6,
        kept_bytes=100,
        forward_peak_bytes=130,
    )
    memory = device_memory(row_of("1F0 1B0 1F1 1B1"), {1: stage}, reserve_bytes=5)
    # F of the second microbatch: one output and one gradient are on their way.
    assert str(memory.peak_action) == "1F1"
    assert memory.peak.items() == {
        "weights": 1,
        "gradients": 2,
        "optimizer": 3,
        "activations": 100,
        "workspace": 130 - 100 - 6,
        "communication": 2 * (4 + 6) + 2 * 6 + 4,
        "overhead": 5,
    }


def test_between_i_and_w_only_a_part_is_held():
    memory = device_memory(row_of("0F0 0F1 0I0 0I1 0W0 0W1"), {0: STAGE})
    assert [x - 1000 for x in memory.after_bytes] == [100, 200, 140, 80, 40, 0]
    assert [x - 1000 for x in memory.during_bytes] == [130, 230, 230, 170, 90, 50]


def test_what_is_back_after_recompute_may_be_more_than_was_kept():
    lean = StageBytes(kept_bytes=10, held_bytes=100, input_grad_peak_bytes=120)
    memory = device_memory(row_of("0F0 0I0 0W0"), {0: lean})
    assert memory.after_bytes == (10, 100, 0)
    assert memory.during_bytes == (10, 130, 100)
    assert memory.moments[1].activations == 100
    assert memory.moments[1].workspace == 30


def test_stages_of_one_device_peak_at_one_moment():
    # Each alone peaks at 100 and 1; they never do so at once.
    stages = {0: StageBytes(kept_bytes=100), 2: StageBytes(kept_bytes=1)}
    apart = device_memory(row_of("0F0 0B0 2F0 2B0"), stages)
    together = device_memory(row_of("0F0 2F0 2B0 0B0"), stages)
    assert (apart.peak.total, together.peak.total) == (100, 101)
    assert str(together.peak_action) == "2F0"


def test_neighbours_on_one_device_hand_over_without_buffers():
    stages = {0: StageBytes(output_bytes=7), 1: StageBytes(input_bytes=7)}
    row = row_of("0F0 0F1 1F0 1F1 1B0 1B1 0B0 0B1")
    memory = device_memory(row, stages)
    assert memory.static.total == 0
    # Two outputs, then the gradients that come back, until B of stage 0.
    assert memory.after_bytes == (7, 14, 14, 14, 21, 28, 14, 0)


def test_towards_other_devices_there_are_buffers_for_every_microbatch():
    middle = {1: StageBytes(input_bytes=5, output_bytes=3)}
    memory = device_memory(row_of("1F0 1F1 1B0 1B1"), middle)
    assert memory.static.communication == 2 * (5 + 3)
    # What is sent stays to the end of the step, gradients of B through the optimizer's.
    assert [x - 16 for x in memory.after_bytes] == [3, 6, 11, 16]
    assert memory.moments[-1].communication == 16 + 2 * 5


def test_gradients_are_made_by_the_first_backward():
    stage = StageBytes(
        gradients_bytes=50,
        kept_bytes=100,
        backward_peak_bytes=20,
        first_backward_peak_bytes=30,
        step_peak_bytes=7,
    )
    memory = device_memory(row_of("0F0 0F1 0B0 0B1"), {0: stage})
    assert memory.after_bytes == (100, 200, 150, 50)
    assert memory.during_bytes == (100, 200, 230, 170)
    assert memory.moments[-1].items()["gradients"] == 50
    assert memory.moments[-1].total == 57
    split = device_memory(row_of("0F0 0I0 0W0"), {0: stage})
    assert split.after_bytes == (100, 0, 50)


def test_what_w_needs_of_a_boundary_outlives_it_within_a_device():
    stage = StageBytes(held_bytes=40, held_input_bytes=5, held_output_grad_bytes=3)
    row = row_of("1F0 1I0 1W0")
    assert device_memory(row, {1: stage}).after_bytes[1] == 40
    around = {0: StageBytes(), 1: stage, 2: StageBytes()}
    assert device_memory(row, around).after_bytes[1] == 48


def test_the_optimizers_step_can_be_the_peak():
    memory = device_memory(row_of("0F0 0B0"), {0: StageBytes(step_peak_bytes=9)})
    assert (memory.peak_action, memory.peak.total) == (None, 9)
    shares = memory_shares(row_of("0F0 0B0"), {0: StageBytes(step_peak_bytes=9)})
    assert shares[0].workspace == 9


def test_without_actions_there_is_what_is_always_there():
    memory = device_memory((), {0: STAGE})
    assert (memory.peak, memory.peak_action) == (memory.static, None)
    assert memory.peak.total == 1000


def test_the_curve_follows_the_clock():
    actions = schedule_actions("1f1b", 1, 1)
    timeline = simulate(actions, [StageTimes(forward_s=1.0, backward_s=2.0)])
    memory = device_memory(actions[0], {0: STAGE})
    assert memory.curve(timeline.starts_s[0], timeline.ends_s[0]) == (
        (0.0, 1000),
        (0.0, 1130),
        (1.0, 1100),
        (1.0, 1120),
        (3.0, 1000),
    )


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("gpipe", [8, 8, 8, 8]),
        ("1f1b", [4, 3, 2, 1]),
        ("zb-h1", [4, 4, 4, 4]),
        ("interleaved-1f1b", [5.5, 4.5, 3.5, 2.5]),
        ("zb-v", [4, 4, 4, 4]),
        ("dualpipe-v", [4.5, 4.5, 4.5, 4.5]),
    ],
)
def test_textbook_orders_hold_what_the_textbook_says(name, held):
    actions = schedule_actions(name, 4, 8)
    each = 1 if len({a.stage for a in actions[0]}) == 1 else 0.5
    for row, expected in zip(actions, held, strict=True):
        stages = {a.stage: StageBytes(kept_bytes=2, held_bytes=2) for a in row}
        assert peak_bytes(row, stages) == 2 * expected / each


# --- whatever the order and the sizes -------------------------------------------


@given(case=rows_with_bytes(), reserve_bytes=sizes)
def test_the_level_is_never_below_what_is_always_there_and_ends_there(
    case, reserve_bytes
):
    row, stages = case
    memory = device_memory(row, stages, reserve_bytes)
    assert min(memory.after_bytes) >= memory.static.total >= reserve_bytes
    made = sum(stage.gradients_bytes for stage in stages.values())
    assert memory.after_bytes[-1] >= memory.static.total + made
    for moment in memory.moments:
        assert min(moment.items().values()) >= 0
    for during, after in zip(memory.during_bytes, memory.after_bytes, strict=True):
        assert during >= after


@given(case=rows_with_bytes())
def test_the_peak_is_no_less_than_what_any_stage_holds_at_once(case):
    row, stages = case
    memory = device_memory(row, stages)
    for number, stage in stages.items():
        held = num_in_flight((row,), number) * min(stage.kept_bytes, stage.held_bytes)
        assert memory.peak.total >= memory.static.total + held


@given(case=rows_with_bytes(), reserve_bytes=sizes)
def test_the_quick_peak_is_the_peak(case, reserve_bytes):
    row, stages = case
    memory = device_memory(row, stages, reserve_bytes)
    assert peak_bytes(row, stages, reserve_bytes) == memory.peak.total
    assert memory.peak.total >= max(memory.during_bytes)
    assert peak_states(row).peak_bytes(stages, reserve_bytes) == memory.peak.total


@given(case=rows_with_bytes(), reserve_bytes=sizes)
def test_the_shares_of_the_stages_add_up_to_the_peak(case, reserve_bytes):
    row, stages = case
    total = dict.fromkeys(device_memory(row, stages).peak.items(), 0)
    for share in memory_shares(row, stages, reserve_bytes).values():
        for key, value in share.items().items():
            total[key] += value
    assert total == device_memory(row, stages, reserve_bytes).peak.items()
