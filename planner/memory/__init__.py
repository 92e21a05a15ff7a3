"""What occupies a card, item by item: by a formula, and at each moment of an order."""

from planner.memory.at_peak import (
    activation_level,
    kept_bytes,
    layer_peak_bytes,
    stage_memory,
)
from planner.memory.boundary import communication_bytes
from planner.memory.over_time import MemoryOverTime, device_memory, peak_bytes
from planner.memory.parameters import (
    parameters_of_stages,
    shared_parameters,
    stage_parameters,
)
from planner.memory.peak_states import PeakStates, peak_states
from planner.memory.shares import memory_shares
from planner.memory.stage_bytes import StageBytes, stage_bytes

__all__ = [
    "MemoryOverTime",
    "PeakStates",
    "StageBytes",
    "activation_level",
    "communication_bytes",
    "device_memory",
    "kept_bytes",
    "layer_peak_bytes",
    "memory_shares",
    "parameters_of_stages",
    "peak_bytes",
    "peak_states",
    "shared_parameters",
    "stage_bytes",
    "stage_memory",
    "stage_parameters",
]
