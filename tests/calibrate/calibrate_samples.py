"""Profiles, plans and runs of them that went exactly as a simulation says."""

import random
from dataclasses import replace

from planner.cards import LINKS, Cluster, Device, Link
from planner.model_profile import LayerProfile, ModelInfo, ModelProfile, ProfiledDevice
from planner.plan import ProfileRef
from planner.run_record import Measured, MeasuredSpan, MeasuredStage
from planner.runtime.measurements import times_of_stage
from planner.simulate import StageTimes, simulate_wired
from planner.solve import Wishes, best_plan, judge_again

# Name, stages and recompute: one and several stages a device, with and without W.
SCHEDULES = [
    ("1f1b", (2, 3, 2), "none"),
    ("1f1b", (3, 2, 2), "full"),
    ("zb-h1", (2, 2, 3), "full"),
    ("interleaved-1f1b", (1, 1, 1, 2, 1, 1), "none"),
    ("zb-v", (1, 1, 1, 1, 2, 1), "full"),
]


def make_profile(seed: int, **device) -> ModelProfile:
    """Seven layers at two microbatch sizes, no two alike."""
    rng = random.Random(seed)
    layers = tuple(_layer(rng, i) for i in range(7))
    return ModelProfile(
        model=ModelInfo(id="tiny"),
        device=ProfiledDevice(
            name="rtx3090",
            memory_bytes=10**9,
            optimizer_s_per_parameter={"adamw": 2e-4, "sgd": 1e-4},
            **{"step_overhead_s": 0.01, **device},
        ),
        dtype="float32",
        seq_len=8,
        layers=layers,
        microbatches={
            "2": tuple(replace(x, forward_s=2 * x.forward_s) for x in layers)
        },
        ties=(("layer.0", "layer.6"),),
    )


def _layer(rng: random.Random, index: int) -> LayerProfile:
    return LayerProfile(
        name=f"layer.{index}",
        num_parameters=rng.randint(100, 900),
        num_tied_parameters=90 if index in (0, 6) else 0,
        forward_s=rng.uniform(0.1, 0.4),
        backward_s=rng.uniform(0.3, 0.9),
        input_grad_s=rng.uniform(0.1, 0.5),
        weight_grad_s=rng.uniform(0.1, 0.5),
        recompute_s=rng.choice([0.0, 0.3]),
        activation_bytes=rng.randint(100, 200),
        recompute_activation_bytes=10,
        output_bytes=1000,
    )


def make_cluster(speeds=(1.0, 0.5, 2.0), link=None) -> Cluster:
    """Three cards of a profile made here, and what joins them."""
    slow = Link(name="slow", bandwidth=1e4, latency_s=0.02)
    return Cluster(
        devices=tuple(
            Device(name=f"rtx3090:{i}", memory_bytes=10**9, speed=speed)
            for i, speed in enumerate(speeds)
        ),
        links=(link or slow,) * 2,
    )


FREE = LINKS["free"]


def make_plan(profile, cluster, schedule, counts, recompute="none"):
    """A plan of the solver for a cut by hand, six microbatches of one sequence."""
    wishes = Wishes(
        schedule=schedule,
        layers_per_stage=counts,
        recompute=recompute,
        global_batch_size=6,
        microbatch_size=1,
        optimizer="adamw",
    )
    ref = ProfileRef(path="tiny.json", sha256="0" * 64)
    return best_plan(profile, cluster, wishes, profile_ref=ref)


def predicted_again(plan, profile, cluster):
    """The same plan with the predictions of another profile."""
    found = judge_again(plan, profile, cluster)
    stages = tuple(
        replace(
            stage,
            predicted=replace(
                stage.predicted,
                memory_bytes=memory,
                **{name: getattr(times, name) for name in StageTimes.__slots__},
            ),
        )
        for stage, times, memory in zip(
            plan.stages, found.times, found.memory(), strict=True
        )
    )
    return replace(plan, stages=stages)


def make_run(plan, profile, cluster, change=lambda stage, times: times, **figures):
    """A run as it is simulated with changed times of the stages.

    Returns its step time, tied gradients and optimizer included, and what it measured.
    """
    judged = judge_again(plan, profile, cluster)
    times = [change(stage, own) for stage, own in enumerate(judged.times)]
    timeline = simulate_wired(judged.setting.wiring, times)
    optimizer_s = figures.pop("optimizer_s", judged.optimizer_s)
    tie_s = figures.pop("tie_s", judged.setting.tie_s)
    spans = [
        MeasuredSpan(action=str(x.action), start_s=x.start_s, end_s=x.end_s)
        for x in timeline.spans
    ]
    step_s = timeline.makespan_s + tie_s + optimizer_s
    return Measured(
        step_s=step_s,
        tokens_per_s=1.0,
        stages=tuple(
            _stage(
                [s for s in spans if s.action[0] == str(index)],
                card,
                optimizer_s,
                figures,
            )
            for index, card in enumerate(plan.card_of_stage)
        ),
    )


def _stage(spans, card, optimizer_s, figures) -> MeasuredStage:
    peak_bytes = figures.get("peak_bytes", [card.own_bytes] * 3)
    return replace(
        times_of_stage(spans),
        optimizer_s=optimizer_s,
        peak_bytes=peak_bytes[card.index],
    )


def scaled(times: StageTimes, factor: float) -> StageTimes:
    """All of them, transfers included."""
    return StageTimes(**{n: getattr(times, n) * factor for n in StageTimes.__slots__})
