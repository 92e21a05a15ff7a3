"""What a calibration finds: a new profile, and each figure before and after."""

from dataclasses import dataclass
from typing import Literal

from planner.model_profile import ModelProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """One figure of a profile beside what a run says of it.

    Attributes:
        what: Such as `stage 0, F`.
        predicted: With the profile as it was [s or bytes].
        measured: By the run [s or bytes].
        unit: Of both. Times are scaled; bytes above the prediction are kept free.
    """

    what: str
    predicted: float
    measured: float
    unit: Literal["s", "bytes"] = "s"

    @property
    def factor(self) -> float | None:
        """Of measured to predicted; None if nothing was predicted."""
        return self.measured / self.predicted if self.predicted else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A profile as a run would have it.

    Attributes:
        profile: The calibrated one.
        moved: Every figure that the run tells something about.
    """

    profile: ModelProfile
    moved: tuple[Moved, ...]
