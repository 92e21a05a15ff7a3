"""Small profiles and clusters for the solver's tests."""

import random

from planner.cards import LINKS, Cluster, Device, Link
from planner.model_profile import LayerProfile, ModelInfo, ModelProfile, ProfiledDevice
from planner.plan import ProfileRef

REF = ProfileRef(path="profile.json", sha256="0" * 64)


def layers(times_s, **same):
    """Layers with B = 2 F, I = W = F and nothing else, unless said."""
    return tuple(
        LayerProfile(
            name=f"layer.{i}",
            forward_s=t,
            backward_s=2 * t,
            input_grad_s=t,
            weight_grad_s=t,
            **same,
        )
        for i, t in enumerate(times_s)
    )


def cluster(num_devices, memory_bytes=10**12, link=LINKS["free"], speeds=None):
    """Devices of one memory and, unless said, one speed."""
    return Cluster(
        devices=tuple(
            Device(
                name=f"gpu:{i}",
                memory_bytes=memory_bytes,
                speed=speeds[i] if speeds else 1.0,
            )
            for i in range(num_devices)
        ),
        links=(link,),
    )


def random_profile(rng: random.Random) -> ModelProfile:
    """Three to six layers of up to three kinds, with ties and uncuttable runs."""
    kinds = [_random_layer(rng) for _ in range(rng.randint(1, 3))]
    count = rng.randint(3, 6)
    rows = tuple(
        LayerProfile(name=f"layer.{i}", **rng.choice(kinds)) for i in range(count)
    )
    # Near enough to share a stage at times, where they count once.
    tied = sorted(rng.sample(range(count), 2))
    ties = [tuple(f"layer.{i}" for i in tied)] if rng.random() < 0.5 else []
    together = []
    if count > 4 and rng.random() < 0.3:
        first = rng.randrange(count - 1)
        together = [(f"layer.{first}", f"layer.{first + 1}")]
    return ModelProfile(
        model=ModelInfo(id="random"),
        device=ProfiledDevice(
            optimizer_s_per_parameter={"adamw": rng.choice([0.0, 0.02])},
            step_overhead_s=rng.choice([0.0, 0.3]),
        ),
        layers=rows,
        ties=tuple(ties),
        uncuttable=tuple(together),
    )


def random_cluster(rng: random.Random, num_devices: int) -> Cluster:
    """Unequal memory, speed and links."""
    return Cluster(
        devices=tuple(
            Device(
                name=f"gpu:{i}",
                memory_bytes=rng.choice([900, 1500, 2500, 4000, 10_000]),
                reserve_bytes=rng.choice([0, 100]),
                speed=rng.choice([0.5, 1.0, 1.0, 2.0]),
            )
            for i in range(num_devices)
        ),
        links=tuple(
            rng.choice(
                [
                    LINKS["free"],
                    Link(name="slow", bandwidth=10.0, latency_s=0.2),
                    Link(name="quick", bandwidth=100.0, latency_s=0.01),
                ]
            )
            for _ in range(num_devices - 1)
        ),
    )


def _random_layer(rng: random.Random) -> dict[str, float | int]:
    activation_bytes = rng.randint(0, 200)
    return {
        "num_parameters": rng.randint(0, 40),
        "forward_s": rng.randint(0, 6) / 2,
        "backward_s": rng.randint(0, 12) / 2,
        "input_grad_s": rng.randint(0, 6) / 2,
        "weight_grad_s": rng.randint(1, 6) / 2,
        "activation_bytes": activation_bytes,
        "recompute_activation_bytes": rng.randint(0, 40),
        "kept_input_bytes": rng.choice([0, rng.randint(0, activation_bytes)]),
        "kept_output_grad_bytes": rng.choice([0, rng.randint(0, 15)]),
        "largest_parameter": rng.choice([0, rng.randint(0, 40)]),
        "output_bytes": rng.randint(0, 15),
        "forward_peak_bytes": rng.randint(0, 200),
        "backward_peak_bytes": rng.randint(0, 200),
        "first_backward_peak_bytes": rng.choice([0, rng.randint(0, 200)]),
    }
