"""A candidate of the search, written down as a plan."""

import math
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

import planner
from planner.cards import Link, LinksFrom
from planner.model_profile import ModelProfile
from planner.plan import (
    SAME_DEVICE,
    Alternative,
    LinkPlan,
    OptimizerPlan,
    Plan,
    PlanPrediction,
    ProfileRef,
    SchedulePlan,
    SolverReport,
    StagePlan,
    StagePrediction,
)
from planner.schedule.actions import format_actions
from planner.solve.baselines import baselines
from planner.solve.candidate import Candidate
from planner.solve.copies import joined
from planner.solve.setting import Setting, counts_of

_MOST_ALTERNATIVES = 20


def as_plan(
    profile: ModelProfile,
    candidate: Candidate,
    *,
    profile_ref: ProfileRef,
    report: SolverReport,
    passed_over: tuple[str, ...],
    others: Iterable[Candidate],
) -> Plan:
    """Write a candidate down as a plan.

    Args:
        profile: Of the model.
        candidate: The best that was found.
        profile_ref: Where the profile came from.
        report: How sure we are.
        passed_over: Optimizers with which nothing fits.
        others: What was found under other schedules.

    Returns:
        The plan, with what others would do.
    """
    setting, timeline = candidate.setting, candidate.timeline
    batch = setting.num_copies * setting.num_microbatches * setting.microbatch_size
    num_tokens = batch * profile.seq_len
    return Plan(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={**profile.versions, "planner": planner.__version__},
        model=profile.model,
        profile=profile_ref,
        device_type=setting.cluster.type,
        dtype=profile.dtype,
        attention=profile.attention,
        trust_remote_code=profile.trust_remote_code,
        seq_len=profile.seq_len,
        global_batch_size=batch,
        stages=_stages(candidate),
        links=_link_plans(setting),
        schedule=SchedulePlan(
            name=setting.schedule,
            num_microbatches=setting.num_microbatches,
            microbatch_size=setting.microbatch_size,
            actions=format_actions(setting.actions),
        ),
        optimizer=OptimizerPlan(
            name=setting.optimizer.name,
            bytes_per_parameter=setting.optimizer.bytes_per_parameter,
            passed_over=passed_over,
        ),
        predicted=PlanPrediction(
            step_s=candidate.step_s,
            makespan_s=timeline.makespan_s,
            tie_s=setting.tie_s,
            reduce_s=setting.exchange_s - setting.tie_s + candidate.reduce_s,
            optimizer_s=candidate.optimizer_s,
            bubble_fraction=timeline.bubble_fraction,
            recompute_fraction=candidate.recompute_fraction,
            tokens_per_s=num_tokens / candidate.step_s if candidate.step_s else 0.0,
        ),
        alternatives=_alternatives(candidate, others),
        solver=report,
        baselines=baselines(_on_all_cards(setting), candidate),
        copies=tuple(
            tuple(device.name for device in cluster.devices)
            for cluster in setting.copies
        ),
        copies_link=_link_plan(setting.cluster.links[0], setting.cluster.links_from)
        if setting.copies
        else None,
    )


def _alternatives(
    best: Candidate, others: Iterable[Candidate]
) -> tuple[Alternative, ...]:
    """The best of every other setting, quickest first."""
    found: dict[tuple[object, ...], Candidate] = {}
    for candidate in sorted(others, key=lambda other: other.step_s):
        found.setdefault(_kind(candidate.setting), candidate)
    found.pop(_kind(best.setting), None)
    return tuple(map(_alternative, found.values()))[:_MOST_ALTERNATIVES]


def _kind(setting: Setting) -> tuple[object, ...]:
    return (
        setting.schedule,
        setting.home,
        setting.num_copies,
        setting.microbatch_size,
    )


def _alternative(candidate: Candidate) -> Alternative:
    setting = candidate.setting
    return Alternative(
        schedule=setting.schedule,
        num_copies=setting.num_copies,
        stages_per_device=setting.stages_per_device,
        microbatch_size=setting.microbatch_size,
        layers_per_stage=counts_of(candidate.cut),
        num_recomputed=sum(map(len, candidate.recompute)),
        peak_bytes=max(candidate.peak_bytes),
        step_s=candidate.step_s,
    )


def _on_all_cards(setting: Setting) -> Setting:
    """What others are compared on: a single pipeline, 1F1B in place of copies."""
    if not setting.copies:
        return setting
    return replace(
        setting,
        cluster=joined((setting.cluster, *setting.copies)),
        copies=(),
        schedule="1f1b",
        stages_per_device=1,
        placement="loop",
        num_microbatches=setting.num_copies * setting.num_microbatches,
        order=None,
    )


def _link_plans(setting: Setting) -> tuple[LinkPlan, ...]:
    links = [setting.link_after(stage) for stage in range(setting.num_stages - 1)]
    return tuple(
        _link_plan(link, setting.cluster.links_from) if link else SAME_DEVICE
        for link in links
    )


def _link_plan(link: Link, origin: LinksFrom) -> LinkPlan:
    return LinkPlan(
        name=link.name,
        bandwidth=link.bandwidth if math.isfinite(link.bandwidth) else None,
        latency_s=link.latency_s,
        origin=origin,
    )


def _stages(candidate: Candidate) -> tuple[StagePlan, ...]:
    setting = candidate.setting
    names = [layer.name for layer in setting.layers]
    busy_fraction, memory = candidate.busy_fraction, candidate.memory()
    return tuple(
        StagePlan(
            index=index,
            device=setting.device(index).name,
            first_layer=first,
            last_layer=last,
            layers=tuple(names[first : last + 1]),
            recompute=tuple(names[i] for i in sorted(candidate.recompute[index])),
            predicted=StagePrediction(
                memory_bytes=memory[index],
                capacity_bytes=setting.device(index).memory_bytes,
                forward_s=times.forward_s,
                backward_s=times.backward_s,
                input_grad_s=times.input_grad_s,
                weight_grad_s=times.weight_grad_s,
                send_forward_s=times.send_forward_s,
                send_backward_s=times.send_backward_s,
                busy_fraction=busy_fraction[index],
            ),
        )
        for index, ((first, last), times) in enumerate(
            zip(candidate.cut, candidate.times, strict=True)
        )
    )
