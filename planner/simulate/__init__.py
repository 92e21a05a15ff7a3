"""When everything happens: the actions of every device on one clock."""

from planner.simulate.clock import simulate, simulate_wired
from planner.simulate.step_end import (
    DeviceEnd,
    StepEnd,
    TieExchange,
    all_reduce_s,
    end_of_step,
)
from planner.simulate.text import timeline_rows
from planner.simulate.timeline import PathStep, Span, Timeline
from planner.simulate.times import OVERLAPPED, StageTimes, Transfers
from planner.simulate.wiring import Wiring, wire

__all__ = [
    "OVERLAPPED",
    "DeviceEnd",
    "PathStep",
    "Span",
    "StageTimes",
    "StepEnd",
    "TieExchange",
    "Timeline",
    "Transfers",
    "Wiring",
    "all_reduce_s",
    "end_of_step",
    "simulate",
    "simulate_wired",
    "timeline_rows",
    "wire",
]
