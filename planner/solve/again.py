"""A plan that exists, judged with another profile or on other cards."""

from planner.cards import Cluster
from planner.errors import WishError
from planner.model_profile import ModelProfile
from planner.optimizers import optimizer_spec
from planner.plan import Plan
from planner.plan_check import check_layers, check_schedule
from planner.schedule.placement import Placement, device_of_stage
from planner.solve.candidate import Candidate, judge
from planner.solve.copies import parts_of
from planner.solve.setting import Setting


def judge_again(plan: Plan, profile: ModelProfile, cluster: Cluster) -> Candidate:
    """Simulate the very order of a plan with the costs of a profile.

    Args:
        plan: Whose cut, recompute, order and optimizer are meant.
        profile: Of the same model.
        cluster: As many devices as the plan has in all copies, those of the first
            copy first.

    Returns:
        Its times, memory and timeline, whether it fits or not.

    Raises:
        ArtifactError: The plan has other layers, or its order is impossible.
        WishError: Its stages lie on the devices, or are as many, as no plan of ours.
    """
    check_layers(plan, [layer.name for layer in profile.layers])
    order = check_schedule(plan)
    own, *copies = parts_of(cluster, plan.num_copies)
    setting = Setting(
        profile=profile,
        cluster=own,
        copies=tuple(copies),
        schedule=plan.schedule.name,
        stages_per_device=plan.num_stages // plan.num_devices,
        placement=_placement(plan, len(own)),
        microbatch_size=plan.schedule.microbatch_size,
        num_microbatches=plan.schedule.num_microbatches,
        optimizer=optimizer_spec(plan.optimizer.name, plan.dtype),
        recompute="auto",
        order=order,
    )
    recompute = tuple(
        frozenset(stage.first_layer + stage.layers.index(x) for x in stage.recompute)
        for stage in plan.stages
    )
    cut = tuple((stage.first_layer, stage.last_layer) for stage in plan.stages)
    return judge(setting, cut, recompute)


def _placement(plan: Plan, num_devices: int) -> Placement:
    home = plan.device_of_stage
    placements: tuple[Placement, ...] = ("loop", "v")
    for placement in placements:
        turns = plan.num_stages // num_devices
        if home == device_of_stage(placement, num_devices, turns):
            return placement
    msg = (
        f"the plan has stages on devices {', '.join(map(str, home))}, not as many on "
        f"each of {num_devices} cards in turn; solve again"
    )
    raise WishError(msg)
