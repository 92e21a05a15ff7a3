"""What a layer costs: measured on a device, or computed without it."""

from planner.measure.profiling import profile_model

__all__ = ["profile_model"]
