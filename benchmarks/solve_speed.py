"""How long the search takes: python benchmarks/solve_speed.py.

Prints one line a case: layers, cards, schedule, seconds, what is proven. First models
made up here, then the whole search, everything `auto`, for the sample profiles.
"""

import random
import time
from pathlib import Path

from planner.cards import LINKS, Cluster, Device
from planner.cluster import parse_cluster
from planner.errors import InfeasibleError
from planner.model_profile import LayerProfile, ModelProfile, load_profile
from planner.plan import ProfileRef
from planner.solve import Wishes, best_plan
from planner.units import GIB

REFERENCE = ProfileRef(path="", sha256="")
PROFILES = Path(__file__).parents[1] / "profiles"


def profile_of(num_layers: int, spread: float) -> ModelProfile:
    """Embedding, blocks of 60 M parameters, and a head of four blocks' time.

    Args:
        num_layers: Embedding and head included.
        spread: How much the blocks' times differ, 0 for equal blocks.

    Returns:
        The profile.
    """
    rng = random.Random(0)
    ends = {"num_parameters": 100_000_000, "output_bytes": 10_000_000}
    embedding = LayerProfile(
        name="embedding",
        forward_s=1e-5,
        backward_s=2e-5,
        activation_bytes=10**6,
        **ends,
    )
    blocks = []
    for index in range(num_layers - 2):
        forward_s = 1e-3 * (1 + spread * rng.random())
        blocks.append(
            LayerProfile(
                name=f"block.{index}",
                num_parameters=60_000_000,
                forward_s=forward_s,
                backward_s=2 * forward_s,
                activation_bytes=150_000_000,
                recompute_activation_bytes=10_000_000,
                output_bytes=10_000_000,
                forward_peak_bytes=160_000_000,
                backward_peak_bytes=100_000_000,
            )
        )
    head = LayerProfile(
        name="head",
        forward_s=4e-3,
        backward_s=8e-3,
        activation_bytes=10**9,
        forward_peak_bytes=10**9,
        backward_peak_bytes=10**9,
        num_parameters=100_000_000,
    )
    return ModelProfile(layers=(embedding, *blocks, head))


def main() -> None:
    """Time the search on models and clusters from small to large."""
    cases = [
        (34, 4, 24, "pcie4x8", 0.0, "auto"),
        (82, 8, 20, "pcie4x8", 0.3, "auto"),
        (128, 16, 100, "free", 0.0, "1f1b"),
        (128, 16, 100, "pcie4x8", 0.0, "1f1b"),
        (128, 16, 100, "pcie4x8", 0.3, "1f1b"),
        (128, 16, 15, "pcie4x8", 0.0, "1f1b"),
        (128, 16, 12, "pcie4x8", 0.0, "1f1b"),
    ]
    for num_layers, num_cards, gib, link, spread, schedule in cases:
        cluster = Cluster(
            devices=tuple(
                Device(name=f"gpu:{i}", memory_bytes=gib * GIB)
                for i in range(num_cards)
            ),
            links=(LINKS[link],),
        )
        wishes = Wishes(schedule=schedule, global_batch_size=4 * num_cards)
        profile = profile_of(num_layers, spread)
        print(
            f"{num_layers:4d} layers {num_cards:3d} cards {gib:4d} GiB {link:8s} "
            f"spread {spread:.1f} {schedule:5s} {timed(profile, cluster, wishes)}",
            flush=True,
        )
    for path in sorted(PROFILES.glob("*-rtx3090.json")):
        profile = load_profile(path)
        for gpus in ("4", "8", "rtx3090:2,rtx4090:2"):
            cluster = parse_cluster(gpus, profile)
            told = timed(profile, cluster, Wishes())
            print(f"{path.stem:30s} {gpus:20s} {told}", flush=True)


def timed(profile: ModelProfile, cluster: Cluster, wishes: Wishes) -> str:
    """Solve, and say how long that took and what came of it."""
    started = time.perf_counter()
    try:
        solver = best_plan(profile, cluster, wishes, profile_ref=REFERENCE).solver
        found = f"{solver.status} gap {solver.gap:.2%} {solver.candidates} simulated"
    except InfeasibleError:
        found = "nothing fits"
    return f"{time.perf_counter() - started:6.2f} s  {found}"


if __name__ == "__main__":
    main()
