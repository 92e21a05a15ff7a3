"""The measured step, as a trace viewer reads it."""

import json

import pytest
from plan_maker import make_plan

from planner.run_record import Measured, MeasuredSpan, MeasuredStage
from planner.runtime.trace import trace

LAYERS = ["embedding", "a", "b", "head"]
# Two devices in a V; every action takes a second:
#   0F .. .. 3F 3I .. .. 0B 3W
#   .. 1F 2F .. .. 2B 1B .. ..
ORDER = ("0F0 3F0 3I0 0B0 3W0", "1F0 2F0 2B0 1B0")
STARTS_S = {"0F0": 0, "1F0": 1, "2F0": 2, "3F0": 3, "3I0": 4, "2B0": 5, "1B0": 6}
STARTS_S |= {"0B0": 7, "3W0": 8}


@pytest.fixture(scope="module")
def events():
    plan = make_plan("tiny", LAYERS, [1] * 4, actions=ORDER, num_microbatches=1)
    stages = tuple(
        MeasuredStage(
            spans=tuple(
                MeasuredSpan(action=name, start_s=start, end_s=start + 1)
                for name, start in STARTS_S.items()
                if name.startswith(stage)
            )
        )
        for stage in "0123"
    )
    measured = Measured(step_s=9.0, tokens_per_s=1.0, stages=stages)
    written = json.loads(json.dumps(trace(plan, measured)))
    assert written["displayTimeUnit"] == "ms"
    return written["traceEvents"]


def of_phase(events, letter):
    return [event for event in events if event["ph"] == letter]


def test_there_is_one_track_a_device_that_names_its_stages(events):
    names = {
        event["tid"]: event["args"]["name"]
        for event in of_phase(events, "M")
        if event["name"] == "thread_name"
    }
    assert names == {1: "cpu:0: stages 0 and 3", 2: "cpu:1: stages 1 and 2"}
    assert {event["pid"] for event in events} == {1}, "all tracks in one group"


def test_every_action_is_a_slice_in_microseconds(events):
    found = {e["name"]: (e["tid"], e["ts"], e["dur"]) for e in of_phase(events, "X")}
    assert found == {
        name: (1 if name[0] in "03" else 2, start * 1e6, 1e6)
        for name, start in STARTS_S.items()
    }


def test_an_arrow_goes_from_device_to_device_for_every_transfer(events):
    """1F to 2F and 2B to 1B stay on a device; W sends nothing."""

    def slice_at(event):
        return next(
            x["name"]
            for x in of_phase(events, "X")
            if x["tid"] == event["tid"] and 0 <= event["ts"] - x["ts"] < x["dur"]
        )

    begins = {event["id"]: event for event in of_phase(events, "s")}
    ends = {event["id"]: event for event in of_phase(events, "f")}
    assert begins.keys() == ends.keys()
    assert {event["bp"] for event in ends.values()} == {"e"}
    arrows = {(slice_at(begins[i]), slice_at(ends[i])) for i in begins}
    assert arrows == {
        ("0F0", "1F0"),
        ("2F0", "3F0"),
        ("3I0", "2B0"),
        ("1B0", "0B0"),
    }
    assert len(begins) == 4
