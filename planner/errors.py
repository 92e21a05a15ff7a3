"""Everything that can go wrong for a user, as one tree.

    PlannerError            exit code 1, one `error:` line, no traceback
    ├── ArtifactError       a profile, plan, run record or card is malformed
    ├── ModelError          the model cannot be found, read or cut
    ├── DataError           the training data cannot be used
    ├── WishError           an option asks for something impossible
    ├── LinkError           devices cannot exchange tensors
    ├── RunError            training was started and a stage failed
    ├── StoppedError        exit code 130 or 143: asked to stop, it saved and stopped
    └── InfeasibleError     exit code 3: nothing fits, with what is missing

Messages carry the numbers and the next step. Mistakes of the programmer are
`ValueError` (raised where a value is made) or `assert`.
"""


class PlannerError(Exception):
    """A user's problem: its text is the whole message."""

    exit_code = 1


class ArtifactError(PlannerError):
    """A profile, plan, run record or file of cards is malformed or misplaced."""


class ModelError(PlannerError):
    """The model cannot be found, read, loaded or cut."""


class DataError(PlannerError):
    """The training data is missing, empty or malformed."""


class WishError(PlannerError):
    """A combination of options that no plan or run can satisfy."""


class LinkError(PlannerError):
    """Two devices cannot exchange tensors, or not as they were sent."""


class RunError(PlannerError):
    """Training was started and could not be finished."""


class StoppedError(PlannerError):
    """A run was asked to stop, saved a checkpoint and ended.

    Args:
        message: Where it can go on from.
        exit_code: 128 and the number of the signal.
    """

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code


class InfeasibleError(PlannerError):
    """Nothing fits.

    Attributes:
        shortfall_bytes: By how much the best try misses its tightest budget [bytes].
        stage: Index of the stage that misses it.
        would_fit: Changes that each make it fit: `arguments` and `step_s`.
    """

    exit_code = 3

    def __init__(
        self,
        message: str,
        *,
        shortfall_bytes: int = 0,
        stage: int = 0,
        would_fit: tuple[dict[str, object], ...] = (),
    ):
        super().__init__(message)
        self.shortfall_bytes = shortfall_bytes
        self.stage = stage
        self.would_fit = would_fit
