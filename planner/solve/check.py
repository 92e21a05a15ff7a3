"""Checks a plan against a profile in plain Python, without any solver.

Every plan that the solver found passes through here before anyone sees it, and
so does every plan that a user brings: solvers have been wrong, and files are
edited.
"""

from planner.errors import ArtifactError
from planner.memory import stage_memory, stage_parameters
from planner.model_profile import ModelProfile
from planner.optimizers import optimizer_spec
from planner.plan import MemoryBreakdown, Plan
from planner.plan_check import check_layers, check_schedule
from planner.schedule.actions import Actions
from planner.schedule.named import num_in_flight
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
        The items of every stage, with the overhead that the plan states.
    """
    layers = profile.layers_at(plan.schedule.microbatch_size)
    spec = optimizer_spec(plan.optimizer.name, plan.dtype)
    memory = []
    for stage in plan.stages:
        own = layers[stage.first_layer : stage.last_layer + 1]
        is_first, is_last = stage.index == 0, stage.index == plan.num_stages - 1
        before = layers[stage.first_layer - 1]
        memory.append(
            stage_memory(
                own,
                recomputed=[layer.name in stage.recompute for layer in own],
                num_in_flight=num_in_flight(actions, stage.index),
                num_parameters=stage_parameters(own, profile.ties),
                optimizer=spec,
                num_microbatches=plan.schedule.num_microbatches,
                input_bytes=0 if is_first else before.output_bytes,
                output_bytes=0 if is_last else own[-1].output_bytes,
                reserve_bytes=stage.predicted.memory_bytes.overhead,
            )
        )
    return tuple(memory)


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
    for stage, memory in zip(plan.stages, expected, strict=True):
        capacity_bytes = stage.predicted.capacity_bytes
        if capacity_bytes and memory.total > capacity_bytes:
            msg = (
                f"stage {stage.index} needs {format_bytes(memory.total)} but "
                f"{stage.device} has {format_bytes(capacity_bytes)}; solve again"
            )
            raise ArtifactError(msg)
