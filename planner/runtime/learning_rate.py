"""The learning rate of every step, by transformers' schedules."""

import torch
from transformers import get_scheduler

from planner.runtime.options import RunOptions


def learning_rates(options: RunOptions, num_steps: int) -> tuple[float, ...]:
    """The learning rate of every step.

    Args:
        options: Peak rate, schedule and warm-up.
        num_steps: Optimizer steps in all.

    Returns:
        One rate a step.
    """
    parameter = torch.nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.SGD([parameter], lr=options.lr)
    warmup = options.warmup_steps
    name = options.lr_schedule
    if name == "constant" and warmup:
        name = "constant_with_warmup"  # type: ignore[assignment]
    scheduler = get_scheduler(
        name, optimizer, num_warmup_steps=warmup, num_training_steps=num_steps
    )
    rates = []
    for _ in range(num_steps):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()
    return tuple(rates)
