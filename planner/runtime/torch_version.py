"""Which versions of torch the schedule runtime was tested with.

It is private to torch and may change with any release, so this is asked before
anything of it is imported.
"""

import torch

from planner.errors import RunError

TESTED_TORCH = ("2.13",)


def check_torch_version() -> None:
    """Make sure that torch is one of those tested.

    Raises:
        RunError: It is another one.
    """
    found = ".".join(torch.__version__.split(".")[:2])
    if found not in TESTED_TORCH:
        msg = (
            f"torch {torch.__version__} is installed, but the schedule runtime was "
            f"tested with {', '.join(TESTED_TORCH)} only; "
            f"pip install 'torch=={TESTED_TORCH[-1]}.*'"
        )
        raise RunError(msg)
