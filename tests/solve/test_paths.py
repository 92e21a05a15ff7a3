"""A path that decided one simulation bounds all others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.schedule.named import schedule_actions
from planner.simulate import StageTimes, simulate
from planner.solve.paths import first_paths, path_of


@st.composite
def two_lists_of_times(draw):
    count = draw(st.integers(1, 5))
    second = st.floats(0, 10)
    one = st.builds(
        StageTimes,
        forward_s=second,
        backward_s=second,
        send_forward_s=second,
        send_backward_s=second,
    )
    many = st.lists(one, min_size=count, max_size=count)
    return draw(many), draw(many)


@given(
    lists=two_lists_of_times(),
    num_microbatches=st.integers(1, 6),
    name=st.sampled_from(["gpipe", "1f1b"]),
)
def test_a_path_is_exact_where_it_was_found_and_a_bound_elsewhere(
    lists, num_microbatches, name
):
    here, elsewhere = lists
    actions = schedule_actions(name, len(here), num_microbatches)
    timeline = simulate(actions, here)
    path = path_of(timeline.critical_path, len(here))
    assert path.length_s(here) == pytest.approx(timeline.makespan_s)
    other_s = simulate(actions, elsewhere).makespan_s
    assert path.length_s(elsewhere) <= other_s + 1e-9


def test_the_first_paths_are_exact_where_one_stage_is_slow():
    actions = schedule_actions("1f1b", 3, 8)
    paths = first_paths(actions, 3)
    for slow in range(3):
        times = [StageTimes(forward_s=1, backward_s=2)] * 3
        times[slow] = StageTimes(forward_s=1.5, backward_s=3)
        longest_s = max(path.length_s(times) for path in paths)
        assert longest_s == simulate(actions, times).makespan_s
        # Textbook: its own work, and the way there and back.
        assert longest_s >= 8 * 4.5 + slow * 3


def test_a_path_counts_what_it_passes():
    actions = schedule_actions("gpipe", 2, 1)
    times = [StageTimes(forward_s=1, backward_s=1)] * 2
    path = path_of(simulate(actions, times).critical_path, 2)
    assert path == ((1, 1), (1, 1), (1, 0), (0, 1))
