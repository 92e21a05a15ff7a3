"""The random number generators of one process, as tensors.

Dropout on a CPU draws from torch's generator, on a card from the card's; some
models skip layers by Python's own.
"""

import random

import torch

# Spreads neighbouring numbers of steps, so that they are not those of other ranks.
_ODD = 0x9E3779B97F4A7C15


def random_states(device: torch.device) -> dict[str, torch.Tensor]:
    """What every generator will draw next.

    Args:
        device: Where this process computes.

    Returns:
        Generator to its state, a vector of integers on the CPU.
    """
    _, words, _ = random.getstate()
    states = {
        "torch": torch.get_rng_state(),
        "python": torch.tensor(words, dtype=torch.int64),
    }
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def set_random_states(states: dict[str, torch.Tensor], device: torch.device) -> None:
    """Draw what would have been drawn when the states were taken.

    Args:
        states: As `random_states` returned them; one that is absent stays.
        device: Where this process computes.
    """
    if "torch" in states:
        torch.set_rng_state(states["torch"])
    if "python" in states:
        random.setstate((3, tuple(states["python"].tolist()), None))
    if "cuda" in states and device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"], device)


def draw_anew(seed: int, num_done: int = 0) -> None:
    """Seed all generators.

    Args:
        seed: Any whole number from 0.
        num_done: Steps that were done before; what they drew does not come again.
    """
    mixed = (seed + num_done * _ODD) % 2**63
    torch.manual_seed(mixed)
    random.seed(mixed)
