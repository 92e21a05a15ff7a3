"""What stages alone on their devices need, for many stages or choices at once.

The same sum of products as `PeakStates.peak_bytes`, over arrays. Stages are taken to
have their neighbours on other devices.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from planner.memory import Levels, PeakStates
from planner.memory.peak_states import GRADIENTS, IN, KEPT, OUT, RUNS, STEP

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundaries:
    """What a stage takes besides what its layers keep for a microbatch.

    Each is one number or an array, one entry a stage.

    Attributes:
        input_bytes: Taken for one microbatch; 0 on the first stage [bytes].
        output_bytes: Made for one microbatch; 0 on the last stage [bytes].
        gradients_bytes: Of its parameters [bytes].
        step_bytes: What the optimizer's step takes on top [bytes].
    """

    input_bytes: Ints | int
    output_bytes: Ints | int
    gradients_bytes: Ints | int
    step_bytes: Ints | int


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelArrays:
    """`Levels` of many stages or choices, one entry each.

    Attributes:
        kept_bytes: From F to B [bytes].
        forward_bytes: Highest level in F [bytes].
        backward_bytes: Highest level in B [bytes].
        first_backward_bytes: Highest level in a step's first B [bytes].
    """

    kept_bytes: Ints
    forward_bytes: Ints
    backward_bytes: Ints
    first_backward_bytes: Ints

    @classmethod
    def of(cls, levels: Sequence[Levels] | Ints) -> Self:
        """Put levels into arrays.

        Args:
            levels: At least one; or an array whose last axis is that of a `Levels`.

        Returns:
            Arrays with one entry each.
        """
        by_field = np.moveaxis(np.asarray(levels, dtype=np.int64), -1, 0)
        kept, _, forward, backward, first, *_ = by_field
        return cls(
            kept_bytes=kept,
            forward_bytes=forward,
            backward_bytes=backward,
            first_backward_bytes=first,
        )


def needed_bytes(states: PeakStates, levels: LevelArrays, around: Boundaries) -> Ints:
    """What stages need at the fullest moment of an order, beside what is always there.

    Args:
        states: Of a device that has one stage.
        levels: Of each stage or choice.
        around: The rest, entries as those of the levels.

    Returns:
        Activations, gradients, workspace and what is sent, one entry each [bytes].
        I counts as B, and what is held from I to W as nothing.
    """
    kept, received = levels.kept_bytes, around.input_bytes
    gradients = around.gradients_bytes
    after_first = gradients + received
    forward = np.maximum(levels.forward_bytes, kept + around.output_bytes)
    backward = np.maximum(levels.backward_bytes, np.maximum(kept, received)) - kept
    in_first = np.minimum(
        levels.first_backward_bytes, levels.backward_bytes + gradients
    )
    first = np.maximum(in_first, np.maximum(kept, after_first))
    terms = {
        KEPT: kept,
        OUT: around.output_bytes,
        IN: received,
        GRADIENTS: gradients,
        RUNS["F", False]: forward,
        RUNS["B", False]: backward,
        RUNS["B", True]: first - kept,
        RUNS["I", False]: backward,
        STEP: around.step_bytes,
    }
    needed = np.zeros_like(kept)
    for state in states.states:
        level = sum(
            state[place] * term for place, term in terms.items() if state[place]
        )
        needed = np.maximum(needed, level)
    return needed
