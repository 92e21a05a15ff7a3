"""One setting of the search: all that is decided outside the cut.

For a setting - schedule, microbatch size, optimizer - a cut and its recompute
choice have one step time, judged by the simulator, and one memory per stage.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from planner.cards import Cluster
from planner.errors import WishError
from planner.memory import stage_memory, stage_parameters
from planner.model_profile import LayerProfile, ModelProfile
from planner.optimizers import OptimizerSpec, optimizer_spec
from planner.plan import MemoryBreakdown
from planner.schedule.actions import Actions
from planner.schedule.named import (
    SCHEDULES,
    named_schedule,
    num_in_flight,
    schedule_actions,
)
from planner.simulate import StageTimes, Timeline, simulate
from planner.solve.wishes import RecomputeMode, Wishes, batch_size, microbatch_sizes

# Per stage: index of its first and of its last layer.
Cut = tuple[tuple[int, int], ...]
# Per stage: indices of the recomputed layers.
Recompute = tuple[frozenset[int], ...]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is fixed while the cut is searched.

    Not slotted, for the sake of `cached_property`.

    Attributes:
        profile: Of the model.
        cluster: One device a stage, in order.
        schedule: Its name.
        microbatch_size: Sequences of one microbatch.
        num_microbatches: Of one step.
        optimizer: What it holds per parameter.
        recompute: Which layers may be, or must be.
    """

    profile: ModelProfile
    cluster: Cluster
    schedule: str
    microbatch_size: int
    num_microbatches: int
    optimizer: OptimizerSpec
    recompute: RecomputeMode

    @property
    def num_stages(self) -> int:
        """One a device."""
        return len(self.cluster)

    @cached_property
    def layers(self) -> tuple[LayerProfile, ...]:
        """Costs at the microbatch size of this setting."""
        return self.profile.layers_at(self.microbatch_size)

    @cached_property
    def actions(self) -> Actions:
        """The order of actions of every device."""
        return schedule_actions(self.schedule, self.num_stages, self.num_microbatches)

    @cached_property
    def in_flight(self) -> tuple[int, ...]:
        """Most microbatches held at once, per stage."""
        return tuple(num_in_flight(self.actions, s) for s in range(self.num_stages))

    def may_recompute(self, layer: int) -> bool:
        """Whether a layer may be recomputed.

        The first and the last layer (embedding and head) never are: they keep
        little, or their peak is their own output, which comes back anyway.

        Args:
            layer: Index of the layer.

        Returns:
            True for every layer between the first and the last, unless forbidden.
        """
        inside = 0 < layer < len(self.layers) - 1
        return inside and self.recompute != "none"

    def input_bytes(self, first: int) -> int:
        """What a stage receives for one microbatch.

        Args:
            first: Index of its first layer.

        Returns:
            Output of the layer before; 0 on the first stage [bytes].
        """
        return self.layers[first - 1].output_bytes if first > 0 else 0

    def output_bytes(self, last: int) -> int:
        """What a stage sends for one microbatch.

        Args:
            last: Index of its last layer.

        Returns:
            Output of that layer; 0 on the last stage [bytes].
        """
        is_final = last == len(self.layers) - 1
        return 0 if is_final else self.layers[last].output_bytes

    def send_forward_s(self, stage: int, last: int) -> float:
        """Time to send a stage's output to the next one.

        Args:
            stage: From 0.
            last: Index of its last layer.

        Returns:
            Over the link between the two; 0 on the last stage [s].
        """
        if stage == self.num_stages - 1:
            return 0.0
        link = self.cluster.link_after(stage)
        return link.transfer_s(self.output_bytes(last))

    def send_backward_s(self, stage: int, first: int) -> float:
        """Time to send a stage's input gradient to the one before.

        Args:
            stage: From 0.
            first: Index of its first layer.

        Returns:
            Over the link between the two; 0 on the first stage [s].
        """
        if stage == 0:
            return 0.0
        link = self.cluster.link_after(stage - 1)
        return link.transfer_s(self.input_bytes(first))

    def optimizer_s(self, stage: int, num_parameters: int) -> float:
        """Time of the optimizer step of one stage.

        Args:
            stage: From 0.
            num_parameters: That it holds.

        Returns:
            The time [s].
        """
        rates = self.profile.device.optimizer_s_per_parameter
        rate_s = rates.get(self.optimizer.name, 0.0)
        return num_parameters * rate_s / self.cluster.devices[stage].speed


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A cut, its recompute choice and what they come to.

    Attributes:
        setting: In which it was judged.
        cut: First and last layer of every stage.
        recompute: Recomputed layers of every stage.
        times: Of every stage.
        memory: Of every stage at its fullest moment.
        timeline: When every action runs.
        optimizer_s: Optimizer step of the slowest stage [s].
    """

    setting: Setting
    cut: Cut
    recompute: Recompute
    times: tuple[StageTimes, ...]
    memory: tuple[MemoryBreakdown, ...]
    timeline: Timeline
    optimizer_s: float

    @property
    def step_s(self) -> float:
        """Makespan and optimizer [s]."""
        return self.timeline.makespan_s + self.optimizer_s

    @property
    def excess_bytes(self) -> tuple[int, ...]:
        """By how much each stage misses its card; below 0 where room is left."""
        devices = self.setting.cluster.devices
        return tuple(
            memory.total - device.memory_bytes
            for memory, device in zip(self.memory, devices, strict=True)
        )

    @property
    def fits(self) -> bool:
        """Whether every stage fits its card."""
        return max(self.excess_bytes) <= 0


def settings_of(
    profile: ModelProfile, cluster: Cluster, wishes: Wishes
) -> tuple[Setting, ...]:
    """Every setting that the wishes leave open, in the order of preference.

    Args:
        profile: Of the model.
        cluster: One device a stage.
        wishes: Of the user.

    Returns:
        At least one setting.

    Raises:
        WishError: A wish cannot be met.
    """
    batch = batch_size(profile, len(cluster), wishes)
    sizes = microbatch_sizes(profile, batch, wishes)
    spec = optimizer_spec(wishes.optimizer, profile.dtype)
    names = schedule_names(wishes)
    return tuple(
        Setting(
            profile=profile,
            cluster=cluster,
            schedule=name,
            microbatch_size=size,
            num_microbatches=batch // size,
            optimizer=spec,
            recompute=wishes.recompute,
        )
        for size in sizes
        for name in names
    )


def schedule_names(wishes: Wishes) -> tuple[str, ...]:
    """The schedules that the wishes leave open.

    Known limitations: one stage a device and whole backwards.

    Args:
        wishes: Of the user.

    Returns:
        At least one name, in the order of preference.

    Raises:
        WishError: There is no such schedule, or the search does not know it.
    """
    known = tuple(
        name
        for name, schedule in SCHEDULES.items()
        if schedule.min_stages_per_device == 1 and not schedule.splits_backward
    )
    if wishes.schedule == "auto":
        return known
    if named_schedule(wishes.schedule).name not in known:
        msg = (
            f"the search does not know schedule {wishes.schedule} yet, only those with "
            "one stage a device and whole backwards; "
            f"use --schedule {' or '.join(known)}"
        )
        raise WishError(msg)
    return (wishes.schedule,)


def judge(setting: Setting, cut: Cut, recompute: Recompute) -> Candidate:
    """Simulate one cut.

    Args:
        setting: All that is decided outside the cut.
        cut: First and last layer of every stage.
        recompute: Recomputed layers of every stage.

    Returns:
        Its times, memory and timeline, whether it fits or not.
    """
    times = tuple(
        stage_times(setting, stage, first, last, again)
        for stage, ((first, last), again) in enumerate(zip(cut, recompute, strict=True))
    )
    parameters = [parameters_of(setting, first, last) for first, last in cut]
    memory = tuple(
        stage_memory(
            setting.layers[first : last + 1],
            recomputed=[index in again for index in range(first, last + 1)],
            num_in_flight=setting.in_flight[stage],
            num_parameters=parameters[stage],
            optimizer=setting.optimizer,
            num_microbatches=setting.num_microbatches,
            input_bytes=setting.input_bytes(first),
            output_bytes=setting.output_bytes(last),
            reserve_bytes=setting.cluster.devices[stage].reserve_bytes,
        )
        for stage, ((first, last), again) in enumerate(zip(cut, recompute, strict=True))
    )
    return Candidate(
        setting=setting,
        cut=cut,
        recompute=recompute,
        times=times,
        memory=memory,
        timeline=simulate(setting.actions, times),
        optimizer_s=max(
            setting.optimizer_s(stage, count) for stage, count in enumerate(parameters)
        ),
    )


def stage_times(
    setting: Setting, stage: int, first: int, last: int, recomputed: frozenset[int]
) -> StageTimes:
    """Times of one stage for one microbatch.

    Args:
        setting: All that is decided outside the cut.
        stage: From 0.
        first: Index of its first layer.
        last: Index of its last layer.
        recomputed: Indices of the layers that run F again before B.

    Returns:
        Sums over its layers and the fixed time of an action, divided by the speed
        of its card, and its transfers.
    """
    own = setting.layers[first : last + 1]
    again_s = sum(setting.layers[index].again_s for index in sorted(recomputed))
    fixed_s = setting.profile.device.step_overhead_s
    speed = setting.cluster.devices[stage].speed
    return StageTimes(
        forward_s=(sum(x.forward_s for x in own) + fixed_s) / speed,
        backward_s=(sum(x.backward_s for x in own) + again_s + fixed_s) / speed,
        input_grad_s=(sum(x.input_grad_s for x in own) + again_s + fixed_s) / speed,
        weight_grad_s=(sum(x.weight_grad_s for x in own) + fixed_s) / speed,
        send_forward_s=setting.send_forward_s(stage, last),
        send_backward_s=setting.send_backward_s(stage, first),
    )


def parameters_of(setting: Setting, first: int, last: int) -> int:
    """Parameters of a stage, those shared within it counted once.

    Args:
        setting: All that is decided outside the cut.
        first: Index of its first layer.
        last: Index of its last layer.

    Returns:
        How many.
    """
    return stage_parameters(setting.layers[first : last + 1], setting.profile.ties)


def cut_from_counts(counts: Sequence[int]) -> Cut:
    """First and last layer of every stage from the number of its layers.

    Args:
        counts: Layers of every stage.

    Returns:
        The cut.
    """
    cut, begin = [], 0
    for count in counts:
        cut.append((begin, begin + count - 1))
        begin += count
    return tuple(cut)
