"""The learning rate of every step, by transformers' schedules."""

from collections.abc import Iterator

import torch
from transformers import get_scheduler

from planner.runtime.options import RunOptions


def learning_rates(options: RunOptions, num_steps: int) -> Iterator[float]:
    """The learning rate of every step.

    Args:
        options: Peak rate, schedule and warm-up.
        num_steps: Optimizer steps in all.

    Yields:
        One rate a step.
    """
    parameter = torch.nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.SGD([parameter], lr=options.lr)
    warmup = options.warmup_steps
    name: str = options.lr_schedule
    if name == "constant" and warmup:
        name = "constant_with_warmup"
    scheduler = get_scheduler(
        name, optimizer, num_warmup_steps=warmup, num_training_steps=num_steps
    )
    for _ in range(num_steps):
        yield float(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
