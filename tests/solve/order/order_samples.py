"""Stages, homes and rooms for the tests of our own order."""

import random

from hypothesis import strategies as st

from planner.schedule.placement import device_of_stage
from planner.simulate import StageTimes
from planner.solve.order.problem import OrderProblem, order_problem


def alike(num_stages, input_grad_s=1.0, weight_grad_s=1.0):
    """Equal stages with F = 1 and B = 2."""
    own = StageTimes(
        forward_s=1.0,
        backward_s=2.0,
        input_grad_s=input_grad_s,
        weight_grad_s=weight_grad_s,
    )
    return (own,) * num_stages


def random_times(rng: random.Random, num_stages: int, largest: int = 4):
    """Whole seconds; splitting costs up to one second more than B."""
    times = []
    for _ in range(num_stages):
        input_s, weight_s = rng.randint(1, largest), rng.randint(1, largest)
        times.append(
            StageTimes(
                forward_s=rng.randint(1, largest),
                backward_s=max(input_s + weight_s - rng.randint(0, 1), 1),
                input_grad_s=input_s,
                weight_grad_s=weight_s,
                send_forward_s=rng.randint(0, 1),
                send_backward_s=rng.randint(0, 1),
            )
        )
    return tuple(times)


def random_question(rng: random.Random, devices=(1, 4), microbatches=(1, 6), largest=4):
    """Arguments of `order_problem`, with tight rooms more often than not."""
    count = rng.randint(*devices)
    homes = device_of_stage(rng.choice(["loop", "v"]), count, rng.randint(1, 2))
    kept = [float(rng.randint(1, 5)) for _ in homes]
    rooms = [
        sum(k for k, home in zip(kept, homes, strict=True) if home == device)
        * rng.choice([1.0, 1.5, 2.0, 4.0])
        for device in range(count)
    ]
    return {
        "times": random_times(rng, len(homes), largest),
        "device_of_stage": homes,
        "num_microbatches": rng.randint(*microbatches),
        "room_bytes": rooms,
        "kept_bytes": kept,
        "held_bytes": [k * rng.choice([0.5, 1.0, 1.5]) for k in kept],
    }


def random_problem(rng: random.Random, **limits) -> OrderProblem:
    """The same as a problem."""
    return order_problem(**random_question(rng, **limits))


seeds = st.integers(0, 10**6).map(random.Random)
