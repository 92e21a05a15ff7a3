"""A profile corrected by a run: what was predicted, what was measured, what moves."""

from planner.calibrate.cards import cards_of_run
from planner.calibrate.check import check_run
from planner.calibrate.moved import Calibration, Moved
from planner.calibrate.scaled import calibrate
from planner.calibrate.text import describe_calibration, describe_change

__all__ = [
    "Calibration",
    "Moved",
    "calibrate",
    "cards_of_run",
    "check_run",
    "describe_calibration",
    "describe_change",
]
