"""A stopwatch notes what is done while it watches."""

import time

import pytest
import torch

from planner.measure.stopwatch import Stopwatch


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass one at every look."""
    seen = iter(range(100))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(seen)))


def test_a_stopwatch_notes_begin_and_end_of_every_action(clock):
    watch = Stopwatch(torch.device("cpu"))
    watch.begin_step()
    assert watch.run("0F0", lambda: "output") == "output"
    watch.run("0B0", lambda: time.perf_counter())
    spans = [(span.action, span.start_s, span.end_s) for span in watch.spans()]
    assert spans == [("0F0", 1.0, 2.0), ("0B0", 3.0, 5.0)]


def test_a_step_forgets_the_step_before():
    watch = Stopwatch(torch.device("cpu"))
    for name in ("0F0", "0F1"):
        watch.begin_step()
        watch.run(name, lambda: None)
    assert [span.action for span in watch.spans()] == ["0F1"]


def test_what_failed_is_not_noted():
    watch = Stopwatch(torch.device("cpu"))
    watch.begin_step()
    with pytest.raises(ZeroDivisionError):
        watch.run("0F0", lambda: 1 / 0)
    assert watch.spans() == ()
