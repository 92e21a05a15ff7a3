"""Small plans and runs to draw, with numbers that are easy to check."""

from dataclasses import replace
from pathlib import Path

from planner.artifact import save, to_json
from planner.model_profile import ModelInfo
from planner.plan import (
    Baseline,
    MemoryBreakdown,
    OptimizerPlan,
    Plan,
    PlanPrediction,
    ProfileRef,
    SchedulePlan,
    SolverReport,
    StagePlan,
    StagePrediction,
)
from planner.report.spans import predicted_spans
from planner.run_record import (
    Measured,
    MeasuredDevice,
    MeasuredSpan,
    MeasuredStage,
    RunRecord,
    StepMetrics,
)
from planner.schedule.actions import format_actions
from planner.schedule.named import schedule_actions
from planner.units import GIB

_ITEMS = ("weights", "gradients", "optimizer", "activations", "workspace")


def one_f_one_b(num_stages: int, num_microbatches: int) -> tuple[tuple[str, ...], ...]:
    """1F1B: stage s begins with S - s forwards, then alternates."""
    rows = []
    for stage in range(num_stages):
        num_first = min(num_stages - stage, num_microbatches)
        row = [f"{stage}F{m}" for m in range(num_first)]
        for m in range(num_microbatches):
            row.append(f"{stage}B{m}")
            if m + num_first < num_microbatches:
                row.append(f"{stage}F{m + num_first}")
        rows.append(tuple(row))
    return tuple(rows)


def memory(scale: float = 1.0, *, reserve_gib: float = 1.0) -> MemoryBreakdown:
    """2, 2, 8, 5 and 1 GiB times the scale, a little communication, a reserve."""
    sizes = dict(zip(_ITEMS, (2, 2, 8, 5, 1), strict=True))
    items = {item: int(gib * scale * GIB) for item, gib in sizes.items()}
    items["communication"] = int(0.1 * GIB)
    items["overhead"] = int(reserve_gib * GIB)
    return MemoryBreakdown(**items, total=sum(items.values()))


def make_plan(
    times_s: tuple[tuple[float, float], ...] = ((0.1, 0.2), (0.11, 0.24)),
    *,
    num_microbatches: int = 4,
    capacity_gib: float = 23.7,
    scales: tuple[float, ...] | None = None,
    device: str = "rtx3090",
    reserve_gib: float = 1.0,
    layers_per_stage: int = 3,
) -> Plan:
    """A 1F1B plan with the given F and B of each stage [s]."""
    stages = tuple(
        StagePlan(
            index=s,
            device=f"{device}:{s}",
            first_layer=s * layers_per_stage,
            last_layer=(s + 1) * layers_per_stage - 1,
            layers=tuple(
                f"model.layers.{s * layers_per_stage + i}"
                for i in range(layers_per_stage)
            ),
            recompute=(f"model.layers.{s * layers_per_stage}",),
            predicted=StagePrediction(
                memory_bytes=memory(
                    scales[s] if scales else 1 - 0.05 * s, reserve_gib=reserve_gib
                ),
                capacity_bytes=int(capacity_gib * GIB),
                forward_s=forward_s,
                backward_s=backward_s,
                send_forward_s=0.004 if s < len(times_s) - 1 else 0.0,
                send_backward_s=0.004 if s else 0.0,
                busy_fraction=0.8,
            ),
        )
        for s, (forward_s, backward_s) in enumerate(times_s)
    )
    makespan_s = num_microbatches * max(f + b for f, b in times_s) + 0.3
    return Plan(
        created="2025-01-02T03:04:05",
        versions={"planner": "0.1.0", "torch": "2.13.0"},
        model=ModelInfo(
            id="someone/small-model",
            architecture="LlamaForCausalLM",
            num_parameters=135_000_000,
        ),
        profile=ProfileRef(path="profiles/small-model.json", sha256="ab" * 32),
        seq_len=256,
        global_batch_size=num_microbatches,
        stages=stages,
        schedule=SchedulePlan(
            name="1f1b",
            num_microbatches=num_microbatches,
            microbatch_size=1,
            actions=one_f_one_b(len(times_s), num_microbatches),
        ),
        optimizer=OptimizerPlan(name="adamw", bytes_per_parameter=16),
        predicted=PlanPrediction(
            step_s=makespan_s + 0.05,
            makespan_s=makespan_s,
            optimizer_s=0.05,
            bubble_fraction=0.2,
            tokens_per_s=num_microbatches * 256 / (makespan_s + 0.05),
        ),
        solver=SolverReport(
            status="optimal",
            bound_s=makespan_s + 0.05,
            gap=0.0,
            candidates=12,
            solve_s=0.4,
        ),
        baselines=(
            Baseline(
                name="even layers",
                layers_per_stage=(3,) * len(times_s),
                step_s=makespan_s * 1.15,
                fits=True,
            ),
            Baseline(
                name="even parameters",
                layers_per_stage=(3,) * len(times_s),
                step_s=makespan_s * 1.3,
                fits=False,
            ),
        ),
    )


def make_v_plan(num_microbatches: int = 4, **options) -> Plan:
    """ZB-V on two cards: stages 0 and 3 on the first, 1 and 2 on the second.

    Of a stage's backward, I is three fifths. Stage 1 is the longest, but stages 0
    and 3 together take longer than 1 and 2.
    """
    times_s = ((0.11, 0.22), (0.14, 0.26), (0.07, 0.13), (0.11, 0.22))
    options = {"scales": (0.4, 0.3, 0.3, 0.5), "reserve_gib": 0.5} | options
    plan = make_plan(times_s, num_microbatches=num_microbatches, **options)
    actions = schedule_actions("zb-v", 2, num_microbatches, 2)
    stages = tuple(
        replace(
            stage,
            device=f"rtx3090:{(0, 1, 1, 0)[stage.index]}",
            predicted=replace(
                stage.predicted,
                input_grad_s=0.6 * stage.predicted.backward_s,
                weight_grad_s=0.4 * stage.predicted.backward_s,
                busy_fraction=0.4,
            ),
        )
        for stage in plan.stages
    )
    schedule = replace(plan.schedule, name="zb-v", actions=format_actions(actions))
    return replace(plan, stages=stages, schedule=schedule)


def make_measured(
    plan: Plan,
    *,
    slower: float = 1.05,
    with_spans: bool = True,
    with_devices: bool = False,
) -> Measured:
    """As predicted, but all takes `slower` times as long, and 3 % less memory.

    Without devices it is a record of before a device could have several stages.
    """
    spans = predicted_spans(plan)
    makespan_s = slower * max(span.end_s for span in spans)
    stages = []
    for stage in plan.stages:
        own = [span for span in spans if span.action.stage == stage.index]
        busy_s = slower * sum(span.end_s - span.start_s for span in own)
        stages.append(
            MeasuredStage(
                peak_bytes=int(0.97 * plan.card_of_stage[stage.index].own_bytes),
                host_peak_bytes=3 * GIB,
                busy_s=busy_s,
                bubble_fraction=1 - busy_s / makespan_s,
                forward_s=slower * stage.predicted.forward_s,
                backward_s=slower * stage.predicted.backward_s,
                input_grad_s=slower * stage.predicted.input_grad_s,
                weight_grad_s=slower * stage.predicted.weight_grad_s,
                optimizer_s=0.06,
                spans=tuple(
                    MeasuredSpan(
                        action=str(span.action),
                        start_s=slower * span.start_s,
                        end_s=slower * span.end_s,
                    )
                    for span in own
                    if with_spans
                ),
            )
        )
    devices = tuple(
        MeasuredDevice(
            device=card.device,
            stages=card.stages,
            peak_bytes=int(0.97 * card.own_bytes),
            busy_s=sum(stages[stage].busy_s for stage in card.stages),
            optimizer_s=0.06,
        )
        for card in plan.cards
        if with_devices
    )
    step_s = makespan_s + 0.06
    return Measured(
        step_s=step_s,
        tokens_per_s=plan.global_batch_size * plan.seq_len / step_s,
        stages=tuple(stages),
        devices=devices,
    )


def make_metrics(num_steps: int = 10) -> tuple[StepMetrics, ...]:
    """A loss that falls from 4."""
    return tuple(
        StepMetrics(
            step=step,
            loss=3.0 + 1.0 / step,
            grad_norm=1.0 + 2.0 / step,
            lr=1e-4,
            num_tokens=1024,
            step_s=1.8,
            tokens_per_s=570.0,
        )
        for step in range(1, num_steps + 1)
    )


def write_run(
    run_dir: Path,
    plan: Plan,
    *,
    measured: Measured | None = None,
    metrics: tuple[StepMetrics, ...] = (),
) -> Path:
    """A run directory, finished if something was measured."""
    run = RunRecord(
        plan=plan,
        status="finished" if measured else "running",
        options={"lr": 1e-4, "steps": 10},
        measured=measured,
        versions={"planner": "0.1.0", "torch": "2.13.0"},
        created="2025-01-03T03:04:05",
    )
    save(run, run_dir / "run.json")
    lines = [" ".join(to_json(entry).split()) + "\n" for entry in metrics]
    (run_dir / "metrics.jsonl").write_text("".join(lines), encoding="utf-8")
    return run_dir
