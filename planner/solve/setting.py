"""One setting of the search: all that is decided outside the cut.

For a setting - schedule, stages a device, microbatch size, optimizer - a cut and
its recompute choice have one step time, judged by the simulator, and one memory
per device.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, TypeVar, TypeVarTuple

from planner.cards import Cluster, Device, Link
from planner.memory import PeakStates, peak_states
from planner.model_profile import LayerProfile, ModelProfile
from planner.optimizers import OptimizerSpec
from planner.schedule.actions import Actions
from planner.schedule.named import (
    schedule_actions,
)
from planner.schedule.placement import Placement, device_of_stage
from planner.simulate import Wiring, all_reduce_s, wire
from planner.solve.wishes import RecomputeMode

# Per stage: index of its first and of its last layer.
Cut = tuple[tuple[int, int], ...]
# Per stage: indices of the recomputed layers.
Recompute = tuple[frozenset[int], ...]

PLANNED = "planned"

Args = TypeVarTuple("Args")
Told = TypeVar("Told")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is fixed while the cut is searched.

    Not slotted, for the sake of `cached_property`.

    Attributes:
        profile: Of the model.
        cluster: The devices, in order.
        schedule: Its name.
        stages_per_device: How many stages each device works on.
        placement: On which device each stage is.
        microbatch_size: Sequences of one microbatch.
        num_microbatches: Of one step.
        optimizer: What it holds per parameter.
        recompute: Which layers may be, or must be.
        order: An order of our own; None for the one that has the schedule's name.
        copies: The devices of every further copy of the pipeline, as many as `cluster`
            has and like them; microbatches are those of one copy.
    """

    profile: ModelProfile
    cluster: Cluster
    schedule: str
    stages_per_device: int = 1
    placement: Placement = "loop"
    microbatch_size: int
    num_microbatches: int
    optimizer: OptimizerSpec
    recompute: RecomputeMode
    order: Actions | None = None
    copies: tuple[Cluster, ...] = ()

    @property
    def num_copies(self) -> int:
        """How many pipelines there are."""
        return 1 + len(self.copies)

    @property
    def num_devices(self) -> int:
        """How many devices a pipeline has."""
        return len(self.cluster)

    @property
    def num_stages(self) -> int:
        """Of all devices."""
        return len(self.cluster) * self.stages_per_device

    @cached_property
    def home(self) -> tuple[int, ...]:
        """Which device works on each stage."""
        return device_of_stage(self.placement, self.num_devices, self.stages_per_device)

    @cached_property
    def stages_of(self) -> tuple[tuple[int, ...], ...]:
        """The stages of each device, in order of the model."""
        return tuple(
            tuple(s for s, home in enumerate(self.home) if home == device)
            for device in range(self.num_devices)
        )

    @cached_property
    def layers(self) -> tuple[LayerProfile, ...]:
        """Costs at the microbatch size of this setting."""
        return self.profile.layers_at(self.microbatch_size)

    @cached_property
    def actions(self) -> Actions:
        """The order of actions of every device."""
        if self.order is not None:
            return self.order
        return schedule_actions(
            self.schedule,
            self.num_devices,
            self.num_microbatches,
            self.stages_per_device,
        )

    @cached_property
    def peak_states(self) -> tuple[PeakStates, ...]:
        """Per device, the moments that can be its fullest."""
        return tuple(peak_states(row) for row in self.actions)

    @cached_property
    def states_alone(self) -> tuple[PeakStates, ...]:
        """Per stage, the same if it were alone on its device."""
        if self.stages_per_device == 1:
            return self.peak_states
        return tuple(
            peak_states([a for a in self.actions[self.home[stage]] if a.stage == stage])
            for stage in range(self.num_stages)
        )

    @cached_property
    def wiring(self) -> Wiring:
        """The order, ready for the simulator."""
        return wire(self.actions)

    @cached_property
    def is_coupled(self) -> bool:
        """Whether the memory of a stage is more than its microbatches in flight.

        So it is where a device has several stages, or where a backward is split.
        """
        splits = any(action.kind == "W" for action in self.actions[0])
        return self.stages_per_device > 1 or splits

    @cached_property
    def told(self) -> dict[Hashable, Any]:
        """What functions that are `told_once` have told so far."""
        return {}

    @cached_property
    def tie_s(self) -> float:
        """Summing the gradient of what the first and the last layer share [s].

        0 where one device holds both. It follows the makespan, though a device
        between the two may still be at work then.
        """
        ends = {self.layers[0].name, self.layers[-1].name}
        here, there = self.home[0], self.home[-1]
        if here == there or ends not in map(set, self.profile.ties):
            return 0.0
        num_tied = self.layers[0].num_tied_parameters
        num_bytes = num_tied * self.optimizer.gradient_bytes
        return all_reduce_s(num_bytes, 2, self.cluster.link_between(here, there))

    @cached_property
    def exchange_s(self) -> float:
        """What every cut has to exchange after its last action [s]."""
        latency_s = 2 * len(self.copies) * self.cluster.links[0].latency_s
        return self.tie_s + latency_s

    def reduce_s(self, num_parameters: int) -> float:
        """Time to sum the gradients of one device over all copies.

        Args:
            num_parameters: That it holds.

        Returns:
            Over a ring as `simulate.all_reduce_s`, without latency [s].
        """
        num_bytes = num_parameters * self.optimizer.gradient_bytes
        share = len(self.copies) / self.num_copies
        return 2 * share * num_bytes / self.cluster.links[0].bandwidth

    def device(self, stage: int) -> Device:
        """The device that works on a stage.

        Args:
            stage: From 0.

        Returns:
            Its card.
        """
        return self.cluster.devices[self.home[stage]]

    def link_after(self, stage: int) -> Link | None:
        """What joins a stage to the next one.

        Args:
            stage: From 0; not the last.

        Returns:
            The link; None if both are on one device.
        """
        here, there = self.home[stage], self.home[stage + 1]
        return None if here == there else self.cluster.link_between(here, there)

    def crosses_before(self, stage: int) -> bool:
        """Whether a stage receives its input from another device.

        Args:
            stage: From 0.

        Returns:
            False for the first stage, and where the stage before is on the same
            device.
        """
        return stage > 0 and self.home[stage - 1] != self.home[stage]

    def crosses_after(self, stage: int) -> bool:
        """Whether a stage sends its output to another device.

        Args:
            stage: From 0.

        Returns:
            False for the last stage, and where the next stage is on the same device.
        """
        return stage < self.num_stages - 1 and self.crosses_before(stage + 1)

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
            Over the link between the two; 0 on the last stage and between stages
            of one device [s].
        """
        if stage == self.num_stages - 1:
            return 0.0
        link = self.link_after(stage)
        return link.transfer_s(self.output_bytes(last)) if link else 0.0

    def send_backward_s(self, stage: int, first: int) -> float:
        """Time to send a stage's input gradient to the one before.

        Args:
            stage: From 0.
            first: Index of its first layer.

        Returns:
            Over the link between the two; 0 on the first stage and between stages
            of one device [s].
        """
        if stage == 0:
            return 0.0
        link = self.link_after(stage - 1)
        return link.transfer_s(self.input_bytes(first)) if link else 0.0

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
        return num_parameters * rate_s / self.device(stage).speed


def told_once(
    function: Callable[[Setting, *Args], Told],
) -> Callable[[Setting, *Args], Told]:
    """Remember what a function says of a setting: two cuts differ in few stages.

    Args:
        function: Of a setting and of what can be a key.

    Returns:
        The same function; it is called once for the same arguments.
    """

    @wraps(function)
    def told(setting: Setting, *args: *Args) -> Told:
        key = (function, *args)
        if key not in setting.told:
            setting.told[key] = function(setting, *args)
        known: Told = setting.told[key]
        return known

    return told


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


def counts_of(cut: Cut) -> tuple[int, ...]:
    """How many layers each stage has.

    Args:
        cut: First and last layer of every stage.

    Returns:
        One count a stage.
    """
    return tuple(last - first + 1 for first, last in cut)
