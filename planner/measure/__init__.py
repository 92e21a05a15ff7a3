"""What a layer costs, measured or computed, and what a link costs."""

from planner.measure.links import measure_links, usual_device
from planner.measure.profiling import profile_model
from planner.measure.progress import Lines, Progress

__all__ = ["Lines", "Progress", "measure_links", "profile_model", "usual_device"]
