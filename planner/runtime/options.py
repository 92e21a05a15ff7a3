"""How a plan is trained: what a user chooses beyond the plan itself.

Light on purpose: the command line reads it without starting torch.
"""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from planner.errors import WishError

DEFAULT_NUM_STEPS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What to train on, for how long and how.

    Attributes:
        output_dir: The run directory.
        data: A file, a folder or `builtin`.
        long_samples: What becomes of a sample longer than the plan's sequences.
        steps: Optimizer steps in all; not together with `epochs`.
        epochs: Passes over the data; neither of the two means 10 steps.
        lr: Peak learning rate.
        lr_schedule: How it goes on after the warm-up.
        warmup_steps: Steps over which it rises from 0.
        weight_decay: Of AdamW, decoupled.
        max_grad_norm: Gradients are clipped to this global norm; 0 is off.
        shuffle: A new order every epoch.
        seed: Of the order and of random weights.
        init: Where weights come from; None is `pretrained` where the model has
            weights, else `random`.
        check: Whether a type that is not known is first tried on a small copy.
        eval_data: What the model is evaluated on, as `data`; None for nothing.
        eval_every: Steps from one evaluation to the next; None for the end only.
        save_every: Steps from one checkpoint to the next; None saves at the end only.
        keep: Checkpoints that stay, the newest.
        resume: A checkpoint to go on from, or a run directory, which stands for its
            newest one.

    Raises:
        WishError: A value that no run can satisfy.
    """

    output_dir: Path
    data: str = "builtin"
    long_samples: Literal["refuse", "truncate", "split"] = "refuse"
    steps: int | None = None
    epochs: int | None = None
    lr: float = 2e-5
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: int = 0
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    shuffle: bool = True
    seed: int = 0
    init: Literal["pretrained", "random"] | None = None
    check: bool = True
    eval_data: str | None = None
    eval_every: int | None = None
    save_every: int | None = None
    keep: int = 2
    resume: Path | None = None

    def __post_init__(self) -> None:
        if self.steps is not None and self.epochs is not None:
            msg = (
                f"--steps {self.steps} and --epochs {self.epochs} both say how long "
                "to train; give one of them"
            )
            raise WishError(msg)
        if self.eval_every is not None and self.eval_data is None:
            msg = f"--eval-every {self.eval_every} needs --eval-data"
            raise WishError(msg)
        for name in ("steps", "epochs", "eval_every", "save_every", "keep"):
            count = getattr(self, name)
            if count is not None and count < 1:
                option = f"--{name.replace('_', '-')}"
                msg = f"{option} is {count}; give a whole number from 1"
                raise WishError(msg)
        for name in ("lr", "warmup_steps", "weight_decay", "max_grad_norm"):
            value = getattr(self, name)
            if not 0 <= value < float("inf"):
                msg = f"--{name.replace('_', '-')} is {value}; give a number from 0"
                raise WishError(msg)
        if not 0 <= self.seed < 2**63:
            msg = f"--seed is {self.seed}; give a whole number from 0 below 2^63"
            raise WishError(msg)

    @property
    def joins(self) -> bool:
        """Whether torchrun started this process, as one of several."""
        return "TORCHELASTIC_RUN_ID" in os.environ

    @property
    def leads(self) -> bool:
        """Whether this process speaks for all: alone, or the first of torchrun's."""
        return not self.joins or os.environ.get("RANK") == "0"

    def num_steps(self, steps_per_epoch: int) -> int:
        """How long to train.

        Args:
            steps_per_epoch: Optimizer steps of one pass over the data.

        Returns:
            Optimizer steps in all.
        """
        if self.epochs is not None:
            return self.epochs * steps_per_epoch
        return DEFAULT_NUM_STEPS if self.steps is None else self.steps

    def as_record(self) -> dict[str, str | int | float | bool | None]:
        """The options as `run.json` keeps them.

        Returns:
            Option name to a value that JSON knows.
        """
        resume = None if self.resume is None else str(self.resume)
        return asdict(self) | {"output_dir": str(self.output_dir), "resume": resume}
