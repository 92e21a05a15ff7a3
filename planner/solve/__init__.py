"""Which plan is best, and how we know."""

from planner.solve.again import judge_again
from planner.solve.best import best_plan, other_ways
from planner.solve.check import check_plan
from planner.solve.wishes import Wishes, parse_layers_per_stage

__all__ = [
    "Wishes",
    "best_plan",
    "check_plan",
    "judge_again",
    "other_ways",
    "parse_layers_per_stage",
]
