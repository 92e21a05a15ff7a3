"""Every setting that the wishes of a user leave open."""

from collections.abc import Sequence

from planner.cards import Cluster
from planner.errors import WishError
from planner.model_profile import LayerProfile, ModelProfile
from planner.optimizers import optimizer_spec
from planner.schedule.named import SCHEDULES, NamedSchedule, named_schedule
from planner.solve.copies import copy_counts, parts_of
from planner.solve.setting import PLANNED, Setting
from planner.solve.wishes import Wishes, batch_size, microbatch_sizes

# Of an interleaved schedule, the most that `auto` tries.
_MOST_STAGES_PER_DEVICE = 2


def settings_of(
    profile: ModelProfile, cluster: Cluster, wishes: Wishes
) -> tuple[Setting, ...]:
    """Every setting of a named schedule that the wishes leave open.

    Args:
        profile: Of the model.
        cluster: The devices.
        wishes: Of the user.

    Returns:
        At least one setting, in the order of preference.

    Raises:
        WishError: A wish cannot be met.
    """
    batch = batch_size(profile, len(cluster), wishes)
    found: list[Setting] = []
    problems: list[WishError] = []
    for count in copy_counts(cluster, batch, wishes):
        parts = parts_of(cluster, count)
        try:
            found += _settings_of(profile, parts, batch // count, wishes)
        except WishError as problem:
            problems.append(problem)
    if not found:
        raise problems[0]
    return tuple(found)


def _settings_of(
    profile: ModelProfile,
    parts: tuple[Cluster, ...],
    batch: int,
    wishes: Wishes,
) -> list[Setting]:
    """The settings of so many copies; `batch` is that of one of them."""
    cluster, *copies = parts
    sizes = microbatch_sizes(profile, batch, wishes)
    spec = optimizer_spec(wishes.optimizer, profile.dtype)
    most = _most_stages_per_device(profile, cluster, wishes)
    found = [
        Setting(
            profile=profile,
            cluster=cluster,
            copies=tuple(copies),
            schedule=schedule.name,
            stages_per_device=count,
            placement=schedule.placement,
            microbatch_size=size,
            num_microbatches=batch // size,
            optimizer=spec,
            recompute=wishes.recompute,
        )
        for size in sizes
        for schedule in _schedules(wishes)
        for count in (range(1, most + 1) if wishes.layers_per_stage is None else [most])
        if not _problem(
            schedule, profile.layers_at(size), len(cluster), batch // size, count
        )
    ]
    if not found:
        layers = profile.layers_at(sizes[0])
        raise WishError(_why_none(layers, cluster, wishes, batch // sizes[0]))
    return found


def _problem(
    schedule: NamedSchedule,
    layers: Sequence[LayerProfile],
    num_devices: int,
    num_microbatches: int,
    stages_per_device: int,
) -> str:
    """Why a schedule is impossible, or its times unknown; empty if neither."""
    silent = [
        x for x in layers if x.backward_s and not x.input_grad_s + x.weight_grad_s
    ]
    if schedule.splits_backward and silent:
        return (
            f"schedule {schedule.name} splits the backward, and the profile does not "
            f"say how long the parts take for '{silent[0].name}' (input_grad_s, "
            "weight_grad_s); profile again, or take another --schedule"
        )
    return schedule.problem(num_devices, num_microbatches, stages_per_device)


def _schedules(wishes: Wishes) -> tuple[NamedSchedule, ...]:
    if wishes.schedule in ("auto", PLANNED):
        return tuple(SCHEDULES.values())
    if wishes.schedule not in SCHEDULES:
        names = ", ".join((*SCHEDULES, PLANNED))
        msg = f"unknown schedule '{wishes.schedule}'; there are {names}"
        raise WishError(msg)
    return (SCHEDULES[wishes.schedule],)


def _most_stages_per_device(
    profile: ModelProfile, cluster: Cluster, wishes: Wishes
) -> int:
    """How many stages a device may have; as wished where the cut is given."""
    if wishes.layers_per_stage is not None:
        return len(wishes.layers_per_stage) // len(cluster)
    if len(cluster) == 1:
        return 1  # several would be overhead only
    num_possible = 1 + sum(profile.legal_cuts())
    return min(_MOST_STAGES_PER_DEVICE, num_possible // len(cluster))


def _why_none(
    layers: Sequence[LayerProfile],
    cluster: Cluster,
    wishes: Wishes,
    num_microbatches: int,
) -> str:
    """Why a schedule that a user named cannot be had."""
    schedule = named_schedule(wishes.schedule)
    count = schedule.min_stages_per_device
    if wishes.layers_per_stage is not None:
        count = len(wishes.layers_per_stage) // len(cluster)
    if because := _problem(schedule, layers, len(cluster), num_microbatches, count):
        return because
    needed = count * len(cluster)
    return (
        f"schedule {schedule.name} has {count} stages on each of {len(cluster)} cards, "
        f"{needed} in all, more than this model can be cut into; take --schedule 1f1b"
    )
