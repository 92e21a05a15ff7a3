import math
from dataclasses import replace

import pytest
from matplotlib.figure import Figure
from report_samples import make_metrics

from planner.report.training import draw_training


def drawn(metrics):
    above, below = Figure(figsize=(9, 5)).subplots(2, 1, sharex=True)
    draw_training(above, below, metrics)
    return above, below


def test_each_step_is_one_point():
    above, below = drawn(make_metrics(4))
    assert list(above.get_lines()[0].get_xdata()) == [1, 2, 3, 4]
    losses = [4, 3.5, 3 + 1 / 3, 3.25]
    assert list(above.get_lines()[0].get_ydata()) == pytest.approx(losses)
    norms = [3, 2, 1 + 2 / 3, 1.5]
    assert list(below.get_lines()[0].get_ydata()) == pytest.approx(norms)


def test_the_axes_say_what_they_show():
    above, below = drawn(make_metrics())
    assert above.get_ylabel() == "loss [nats a token]"
    assert (below.get_xlabel(), below.get_ylabel()) == ("step", "gradient norm")


def test_a_loss_that_is_not_finite_leaves_the_rest_drawn():
    good = make_metrics(5)
    above, _ = drawn((*good[:2], replace(good[2], loss=math.inf), *good[3:]))
    assert above.get_ylim()[1] < 5


def test_one_step_is_still_seen():
    above, _ = drawn(make_metrics(1))
    assert above.get_lines()[0].get_marker() == "o"


def test_evaluations_are_marked_in_the_axes_of_the_loss():
    good = make_metrics(4)
    above, below = drawn((*good[:3], replace(good[3], eval_loss=2.5)))
    _, marks = above.get_lines()
    assert (list(marks.get_xdata()), list(marks.get_ydata())) == ([4], [2.5])
    assert above.get_legend().get_texts()[0].get_text() == "evaluation"
    assert len(below.get_lines()) == 1
