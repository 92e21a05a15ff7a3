"""What is shown while a model is measured."""

import contextlib
import io
import sys

import pytest

from planner.cli.progress import Bar, shown_progress


class Terminal(io.StringIO):
    def isatty(self):
        return True

    def visible(self):
        """What is left on the screen: a carriage return begins the line anew."""
        lines = self.getvalue().split("\n")
        return [line.split("\r")[-1].strip() for line in lines]


@pytest.fixture
def terminal():
    return Terminal()


def test_the_bar_names_the_layer_that_is_next(terminal):
    bar = Bar(terminal)
    bar.step("model.layers.0, 1 x 2048 tokens", 1, 4)
    (line,) = terminal.visible()
    assert line.startswith("25 % |")
    assert line.endswith("1/4 model.layers.0, 1 x 2048 tokens")


def test_the_last_step_wipes_the_bar_away(terminal):
    bar = Bar(terminal)
    for done in range(3):
        bar.step(f"layer {done}" if done < 2 else "", done, 2)
    assert terminal.visible() == [""]


def test_a_line_stays_above_the_bar(terminal):
    bar = Bar(terminal)
    bar.step("head", 0, 1)
    bar.say("head: times spread by 20 %")
    assert terminal.visible()[0] == "head: times spread by 20 %"
    assert "0/1 head" in terminal.visible()[1]


def test_the_number_of_steps_may_change_on_the_way(terminal):
    bar = Bar(terminal)
    bar.step("a", 0, 8)
    bar.step("b", 1, 2)
    assert terminal.visible()[0].startswith("50 %")


def test_an_error_finds_the_terminal_clean(terminal, monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal)
    with contextlib.suppress(ZeroDivisionError), shown_progress() as progress:
        progress.step("head", 0, 1)
        raise ZeroDivisionError
    assert "head" in terminal.getvalue()
    assert terminal.visible() == [""]


def test_a_log_gets_one_line_a_step(capsys):
    with shown_progress() as progress:
        progress.say("reading tiny")
        progress.step("head, 1 x 8 tokens", 0, 1)
        progress.step("", 1, 1)
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "reading tiny\nprofiling head, 1 x 8 tokens\n"
