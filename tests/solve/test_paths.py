"""A path that decided one simulation bounds all others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.schedule.named import SCHEDULES, schedule_actions
from planner.schedule.placement import device_of_stage
from planner.simulate import StageTimes, simulate
from planner.solve.paths import PARTS, first_paths, path_of

CASES = [
    ("gpipe", 1),
    ("1f1b", 1),
    ("zb-h1", 1),
    ("looped-bfs", 2),
    ("interleaved-zb", 3),
    ("zb-v", 2),
]


@st.composite
def schedules_with_times(draw):
    name, stages_per_device = draw(st.sampled_from(CASES))
    num_devices, rounds = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    count = rounds * num_devices
    actions = schedule_actions(name, num_devices, count, stages_per_device)
    placement = SCHEDULES[name].placement
    home = device_of_stage(placement, num_devices, stages_per_device)
    second = st.floats(0, 10)
    one = st.builds(StageTimes, **dict.fromkeys(PARTS, second))
    many = st.lists(one, min_size=len(home), max_size=len(home))
    return actions, home, draw(many), draw(many)


@given(case=schedules_with_times())
def test_a_path_is_exact_where_it_was_found_and_a_bound_elsewhere(case):
    actions, home, here, elsewhere = case
    timeline = simulate(actions, here)
    path = path_of(timeline.critical_path, home)
    assert path.length_s(here) == pytest.approx(timeline.makespan_s)
    other_s = simulate(actions, elsewhere).makespan_s
    assert path.length_s(elsewhere) <= other_s + 1e-9


def test_the_first_paths_are_exact_where_one_stage_is_slow():
    actions = schedule_actions("1f1b", 3, 8)
    paths = first_paths(actions, (0, 1, 2))
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
    path = path_of(simulate(actions, times).critical_path, (0, 1))
    assert path == ((1, 1), (1, 1), (0, 0), (0, 0), (1, 0), (0, 1))


def test_stages_of_one_device_hand_over_without_a_transfer():
    # Stages 1 and 2 are both on the second of two devices.
    actions = schedule_actions("zb-v", 2, 1)
    times = [StageTimes(forward_s=1, backward_s=2, input_grad_s=1, weight_grad_s=1)] * 4
    path = path_of(simulate(actions, times).critical_path, (0, 1, 1, 0))
    assert path.sends_forward == (1, 0, 1, 0)
