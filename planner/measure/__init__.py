"""What a layer costs: measured on a device, or computed without it."""

from planner.measure.profiling import profile_model
from planner.measure.progress import Lines, Progress

__all__ = ["Lines", "Progress", "profile_model"]
