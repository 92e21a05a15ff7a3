"""Memory of an order: by hand, against the formula, and whatever the sizes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_orders import rows_with_bytes, sizes

from planner.memory import (
    StageBytes,
    device_memory,
    peak_bytes,
    stage_bytes,
    stage_memory,
)
from planner.model_profile import LayerProfile
from planner.optimizers import optimizer_spec
from planner.schedule.actions import parse_actions
from planner.schedule.named import num_in_flight, schedule_actions
from planner.simulate import StageTimes, simulate

STAGE = StageBytes(
    weights_bytes=1000,
    kept_bytes=100,
    held_bytes=40,
    forward_peak_bytes=130,
    backward_peak_bytes=20,
    input_grad_peak_bytes=30,
    weight_grad_peak_bytes=10,
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
        kept_bytes=100,
        forward_peak_bytes=130,
    )
    peak = device_memory(row_of("1F0 1F1 1B0 1B1"), {1: stage}, reserve_bytes=5).peak
    assert peak.items() == {
        "weights": 1,
        "gradients": 2,
        "optimizer": 3,
        "activations": 200,
        "workspace": 30,
        "communication": 2 * 2 * 4,
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
    assert memory.during(1).items()["activations"] == 100
    assert memory.during(1).items()["workspace"] == 30


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
    assert memory.peak.communication == 2 * 2 * (5 + 3)


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


# --- against the formula --------------------------------------------------------

layers_of_a_stage = st.lists(
    st.builds(
        LayerProfile,
        name=st.just("layer"),
        activation_bytes=sizes,
        recompute_activation_bytes=sizes,
        output_bytes=sizes,
        forward_peak_bytes=sizes,
        backward_peak_bytes=sizes,
    ),
    min_size=1,
    max_size=4,
)


@given(
    name=st.sampled_from(["1f1b", "gpipe"]),
    counts=st.tuples(st.integers(1, 5), st.integers(1, 8), st.integers(0, 4)),
    layers=layers_of_a_stage,
    flags=st.lists(st.booleans(), min_size=4, max_size=4),
    sides=st.tuples(sizes, sizes, sizes),
)
def test_one_stage_a_device_peaks_where_the_formula_says(
    name, counts, layers, flags, sides
):
    num_devices, num_microbatches, device = counts
    device = min(device, num_devices - 1)
    actions = schedule_actions(name, num_devices, num_microbatches)
    common = {
        "recomputed": flags[: len(layers)],
        "num_parameters": 10,
        "optimizer": optimizer_spec("adamw", "bfloat16"),
        "input_bytes": sides[0],
        "output_bytes": sides[1],
    }
    stage = stage_bytes(layers, is_first=device == 0, **common)
    peak = device_memory(actions[device], {device: stage}, sides[2]).peak
    assert peak == stage_memory(
        layers,
        num_in_flight=num_in_flight(actions, device),
        num_microbatches=num_microbatches,
        reserve_bytes=sides[2],
        **common,
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
    assert memory.after_bytes[-1] == memory.static.total
    assert min(memory.activations_bytes) >= 0
    assert min(memory.workspace_bytes) >= 0
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
    assert memory.peak.total == max(memory.during_bytes)
