"""Samples are taken until they agree, by a clock that the tests turn."""

import itertools
import time

import pytest

from planner.measure import sampling
from planner.measure.sampling import sample, spread

WARM_UP = sampling._NUM_WARMUP_ROUNDS


@pytest.fixture
def play(monkeypatch):
    """Makes rounds that take what they are told, and counts them."""

    class Play:
        now_s = 0.0
        count = 0

        def of(self, seconds):
            def one_round():
                self.count += 1
                self.now_s += (taken := next(seconds))
                return {"F": [taken]}

            return one_round

    found = Play()
    monkeypatch.setattr(time, "perf_counter", lambda: found.now_s)
    return found


def test_the_spread_is_the_range_of_the_middle_half_over_the_median():
    assert spread([1, 2, 3, 4, 5]) == pytest.approx(2 / 3)
    assert spread([2.0, 2.0, 2.0, 2.0, 90.0]) == 0.0
    assert spread([3.0]) == spread([0.0, 0.0]) == 0.0


def test_equal_samples_end_early(play):
    found = sample(play.of(itertools.repeat(1e-3)), judged="F")
    assert found == {"F": [1e-3] * sampling._MANY}
    assert play.count == WARM_UP + sampling._MANY


def test_slow_samples_end_when_the_time_is_up(play):
    found = sample(play.of(itertools.repeat(sampling._BUDGET_S)), judged="F")
    assert len(found["F"]) == sampling._FEWEST


def test_samples_that_differ_a_little_are_as_many_as_can_be(play):
    found = sample(play.of(itertools.cycle([1.00e-3, 1.08e-3])), judged="F")
    assert len(found["F"]) == sampling._MOST
    assert play.count == WARM_UP + sampling._MOST, "that is not worth another try"


def test_samples_that_differ_much_are_taken_again_and_longer(play):
    found = sample(play.of(itertools.cycle([1e-3, 2e-3])), judged="F")
    more = sampling._MORE * sampling._MOST
    assert play.count == WARM_UP + sampling._MOST + more
    assert spread(found["F"]) > sampling.WIDE


def test_the_narrower_try_counts(play):
    disturbed = itertools.islice(itertools.cycle([1e-3, 2e-3]), sampling._MOST)
    seconds = itertools.chain([5e-3] * WARM_UP, disturbed, itertools.repeat(1e-3))
    assert set(sample(play.of(seconds), judged="F")["F"]) == {1e-3}


def test_a_second_try_that_is_worse_does_not_count(play):
    first = itertools.islice(itertools.cycle([1e-3, 2e-3]), sampling._MOST)
    seconds = itertools.chain([5e-3] * WARM_UP, first, itertools.cycle([1e-3, 9e-3]))
    assert set(sample(play.of(seconds), judged="F")["F"]) == {1e-3, 2e-3}


def test_what_is_not_judged_may_differ(play):
    seconds = itertools.repeat(1e-3)
    steady = play.of(seconds)
    restless = itertools.cycle([1e-6, 3e-6])
    found = sample(lambda: {**steady(), "W": [next(restless)]}, judged="F")
    assert len(found["W"]) == sampling._MANY
