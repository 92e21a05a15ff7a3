"""A handful of states instead of a whole row."""

from hypothesis import given
from hypothesis import strategies as st
from random_orders import bytes_of_a_stage, named_orders, sizes

from planner.memory import StageBytes, peak_bytes, peak_states
from planner.schedule.named import schedule_actions


def test_1f1b_has_five_states_whatever_the_number_of_microbatches():
    for count in (8, 100):
        row = schedule_actions("1f1b", 5, count)[1]
        # Kept, held, out, back, in, gradients; F, B, first B, I, W, first W; step.
        assert peak_states(row).states == (
            (3, 0, count - 1, 0, count - 4, 1, 1, 0, 0, 0, 0, 0, 0),
            (4, 0, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0),
            (4, 0, count, 0, count - 4, 1, 0, 1, 0, 0, 0, 0, 0),
            (1, 0, count, 0, count - 1, 1, 0, 1, 0, 0, 0, 0, 0),
            (0, 0, 0, 0, count, 1, 0, 0, 0, 0, 0, 0, 1),
        )


def test_gpipe_has_as_few():
    for count in (4, 100):
        row = schedule_actions("gpipe", 3, count)[1]
        assert len(peak_states(row).states) == 5


@given(
    actions=named_orders(),
    pick=st.integers(0),
    cuts=st.lists(st.lists(bytes_of_a_stage, min_size=12, max_size=12), max_size=4),
    reserve_bytes=sizes,
)
def test_they_tell_the_peak_of_any_cut(actions, pick, cuts, reserve_bytes):
    row = actions[pick % len(actions)]
    found = peak_states(row)
    for cut in cuts:
        stages = {stage: cut[stage] for stage in found.stages}
        assert found.peak_bytes(stages, reserve_bytes) == peak_bytes(
            row, stages, reserve_bytes
        )


@given(actions=named_orders())
def test_none_of_them_is_idle(actions):
    for row in actions:
        states = peak_states(row).states
        for state in states:
            rivals = [other for other in states if other != state]
            assert not any(
                all(x >= y for x, y in zip(other, state, strict=True))
                for other in rivals
            )


def test_terms_stand_stage_by_stage():
    row = schedule_actions("zb-v", 2, 4)[1]
    found = peak_states(row)
    own = StageBytes(kept_bytes=10, held_bytes=4, output_bytes=3, forward_peak_bytes=20)
    assert found.stages == (1, 2)
    # Stage 1 hands 3 to stage 2, which hands a gradient of 3 back.
    assert found.terms({1: own, 2: own}) == (
        *(10, 4, 3, 3, 0, 0, 20, 0, 0, 0, 0, 0, 0),
        *(10, 4, 3, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0),
    )
