"""What occupies a card, item by item, at each moment of an order."""

from planner.memory.boundary import receive_buffer_bytes
from planner.memory.layer_levels import Levels, layer_levels, levels_of
from planner.memory.over_time import MemoryOverTime, device_memory, peak_bytes
from planner.memory.parameters import (
    parameters_of_stages,
    shared_parameters,
    stage_parameters,
)
from planner.memory.peak_states import PeakStates, peak_states
from planner.memory.shares import memory_shares
from planner.memory.stage_bytes import StageBytes, stage_bytes
from planner.memory.stage_levels import at_boundaries, layer_step_bytes

__all__ = [
    "Levels",
    "MemoryOverTime",
    "PeakStates",
    "StageBytes",
    "at_boundaries",
    "device_memory",
    "layer_levels",
    "layer_step_bytes",
    "levels_of",
    "memory_shares",
    "parameters_of_stages",
    "peak_bytes",
    "peak_states",
    "receive_buffer_bytes",
    "shared_parameters",
    "stage_bytes",
    "stage_parameters",
]
