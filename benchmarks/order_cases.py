"""The twelve cases of `own_order.py`."""

from pathlib import Path

from planner.cluster import parse_cluster
from planner.model_profile import load_profile
from planner.solve import Wishes
from planner.solve.setting import Setting, settings_of

PROFILES = Path(__file__).parents[1] / "profiles"
# Sample profile and number of cards like its own.
CASES = (
    ("llama-3.2-1b", 4),
    ("qwen2.5-1.5b", 4),
    ("gemma-2-2b", 4),
    ("qwen2.5-3b", 4),
    ("llama-3.2-3b", 4),
    ("gemma-2-2b", 8),
    ("qwen2.5-3b", 8),
    ("llama-3.2-3b", 8),
    ("llama-2-7b-hf", 8),
    ("mistral-7b-v0.1", 8),
    ("qwen2.5-7b", 8),
    ("llama-3.1-8b", 8),
)


def settings_of_case(name: str, num_cards: int) -> tuple[Setting, ...]:
    """Every named schedule that is possible in a case.

    Args:
        name: Of the sample profile.
        num_cards: How many cards there are.

    Returns:
        The settings, with microbatches of one sequence.
    """
    profile = load_profile(PROFILES / f"{name}-rtx3090.json")
    cluster = parse_cluster(str(num_cards), profile)
    return settings_of(profile, cluster, Wishes(microbatch_size=1))
