"""Whoever waits for a profile is told where it is."""

from planner.measure.progress import Lines, Steps


class Told:
    def __init__(self):
        self.steps = []

    def say(self, line):
        raise AssertionError(line)

    def step(self, what, done, total):
        self.steps.append((what, done, total))


def test_a_step_that_begins_is_not_yet_done_and_at_the_end_all_are():
    told = Told()
    steps = Steps(told, 2)
    steps.begin("embedding")
    steps.begin("head")
    steps.end()
    assert told.steps == [("embedding", 0, 2), ("head", 1, 2), ("", 2, 2)]


def test_fewer_steps_than_announced_end_just_as_well():
    told = Told()
    steps = Steps(told, 8)
    steps.begin("embedding")
    steps.expect(0)
    steps.end()
    assert told.steps[-1] == ("", 1, 1)


def test_lines_name_what_begins_and_nothing_at_the_end():
    lines = []
    steps = Steps(Lines(say=lines.append), 1)
    steps.begin("embedding")
    steps.end()
    assert lines == ["profiling embedding"]
