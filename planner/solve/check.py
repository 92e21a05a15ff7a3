"""Checks a plan against a profile in plain Python, without any solver.

Every plan that the solver found passes through here before anyone sees it, and
so does every plan that a user brings: solvers have been wrong, and files are
edited.
"""

from planner.errors import ArtifactError
from planner.memory import (
    StageBytes,
    memory_shares,
    parameters_of_stages,
    stage_bytes,
)
from planner.model_profile import ModelProfile
from planner.optimizers import optimizer_spec
from planner.plan import MemoryBreakdown, Plan, StagePlan
from planner.plan_check import check_layers, check_schedule
from planner.schedule.actions import Actions
from planner.units import format_bytes


def check_plan(plan: Plan, profile: ModelProfile) -> None:
    """Check that a plan is one for this profile, and that it can be run.

    Args:
        plan: From the solver or from a user's file.
        profile: That it was made from.

    Raises:
        ArtifactError: Settings or layer names differ, layers are parted that
            must not be, the schedule is impossible, or a stage does not fit.
    """
    _check_settings(plan, profile)
    check_layers(plan, [layer.name for layer in profile.layers])
    _check_cuts(plan, profile)
    actions = check_schedule(plan)
    _check_memory(plan, profile, actions)


def expected_memory(
    plan: Plan, profile: ModelProfile, actions: Actions
) -> tuple[MemoryBreakdown, ...]:
    """What every stage of a plan needs, computed from the profile.

    Args:
        plan: Whose stages are meant.
        profile: That it was made from.
        actions: Of every device.

    Returns:
        The items of every stage at the fullest moment of its device, with the
        overhead that the plan states.
    """
    memory = [MemoryBreakdown()] * plan.num_stages
    for card in plan.cards:
        stages = [plan.stages[index] for index in card.stages]
        runs = [profile.layers[s.first_layer : s.last_layer + 1] for s in stages]
        parameters = parameters_of_stages(runs, profile.ties)
        own = {
            stage.index: _stage_bytes(plan, profile, stage, count)
            for stage, count in zip(stages, parameters, strict=True)
        }
        overhead_bytes = card.memory_bytes.overhead
        for index, share in memory_shares(
            actions[card.index], own, overhead_bytes
        ).items():
            memory[index] = share
    return tuple(memory)


def _stage_bytes(
    plan: Plan, profile: ModelProfile, stage: StagePlan, num_parameters: int
) -> StageBytes:
    layers = profile.layers_at(plan.schedule.microbatch_size)
    own = layers[stage.first_layer : stage.last_layer + 1]
    index = stage.index
    is_last = index == plan.num_stages - 1
    return stage_bytes(
        own,
        recomputed=[layer.name in stage.recompute for layer in own],
        num_parameters=num_parameters,
        optimizer=optimizer_spec(plan.optimizer.name, plan.dtype),
        input_bytes=layers[stage.first_layer - 1].output_bytes if index else 0,
        output_bytes=0 if is_last else own[-1].output_bytes,
        is_first=index == 0,
    )


def _check_settings(plan: Plan, profile: ModelProfile) -> None:
    pairs = {
        "model": (plan.model.id, profile.model.id),
        "dtype": (plan.dtype, profile.dtype),
        "seq_len": (plan.seq_len, profile.seq_len),
        "attention": (plan.attention, profile.attention),
    }
    for key, (ours, theirs) in pairs.items():
        if ours != theirs:
            msg = (
                f"the plan has {key} {ours} but the profile {theirs}; "
                "solve again with this profile"
            )
            raise ArtifactError(msg)


def _check_cuts(plan: Plan, profile: ModelProfile) -> None:
    legal = profile.legal_cuts()
    for stage in plan.stages[:-1]:
        if not legal[stage.last_layer]:
            msg = (
                f"the plan parts '{profile.layers[stage.last_layer].name}' from "
                f"'{profile.layers[stage.last_layer + 1].name}', which belong together"
            )
            raise ArtifactError(msg)


def _check_memory(plan: Plan, profile: ModelProfile, actions: Actions) -> None:
    """A plan without capacities (written by hand) is not held to them."""
    expected = expected_memory(plan, profile, actions)
    for card in plan.cards:
        needed_bytes = sum(expected[index].total for index in card.stages)
        if card.capacity_bytes and needed_bytes > card.capacity_bytes:
            many = len(card.stages) > 1
            word, need = ("stages", "need") if many else ("stage", "needs")
            msg = (
                f"{word} {' and '.join(map(str, card.stages))} {need} "
                f"{format_bytes(needed_bytes)} but {card.device} has "
                f"{format_bytes(card.capacity_bytes)}; solve again"
            )
            raise ArtifactError(msg)
