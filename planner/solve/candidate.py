"""A cut with its recompute choice, judged: times, memory, timeline.

What stages of one device hold adds up at one moment, so the memory of a stage is
its share of the fullest moment of its device; the reserve counts with the first.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.memory import (
    StageBytes,
    memory_shares,
    parameters_of_stages,
    stage_bytes,
)
from planner.plan import MemoryBreakdown
from planner.simulate import StageTimes, Timeline, simulate_wired
from planner.solve.setting import Cut, Recompute, Setting, told_once


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A cut, its recompute choice and what they come to.

    Attributes:
        setting: In which it was judged.
        cut: First and last layer of every stage.
        recompute: Recomputed layers of every stage.
        times: Of every stage.
        peak_bytes: Of every device, at its fullest moment [bytes].
        timeline: When every action runs.
        optimizer_s: Optimizer step of the slowest device [s].
        reduce_s: Summing gradients over the copies, of the fullest device [s].
    """

    setting: Setting
    cut: Cut
    recompute: Recompute
    times: tuple[StageTimes, ...]
    peak_bytes: tuple[int, ...]
    timeline: Timeline
    optimizer_s: float
    reduce_s: float = 0.0

    @property
    def step_s(self) -> float:
        """Makespan, the exchange of gradients, and optimizer [s]."""
        exchange_s = self.setting.exchange_s + self.reduce_s
        return self.timeline.makespan_s + exchange_s + self.optimizer_s

    @property
    def excess_bytes(self) -> tuple[int, ...]:
        """By how much each device is too small; below 0 where room is left."""
        devices = self.setting.cluster.devices
        return tuple(
            peak - device.memory_bytes
            for peak, device in zip(self.peak_bytes, devices, strict=True)
        )

    @property
    def fits(self) -> bool:
        """Whether every device is large enough."""
        return max(self.excess_bytes) <= 0

    @property
    def recompute_fraction(self) -> float:
        """Share of the makespan in which devices run F again."""
        setting, makespan_s = self.setting, self.timeline.makespan_s
        again_s = sum(
            setting.layers[layer].again_s / setting.device(stage).speed
            for stage, layers in enumerate(self.recompute)
            for layer in sorted(layers)
        )
        whole_s = setting.num_devices * makespan_s
        return setting.num_microbatches * again_s / whole_s if whole_s else 0.0

    def memory(self) -> tuple[MemoryBreakdown, ...]:
        """What takes the room.

        Returns:
            Of every stage, at the fullest moment of its device.
        """
        setting = self.setting
        parameters = parameters_of(setting, self.cut)
        own = stages_bytes(setting, self.cut, self.recompute, parameters)
        memory = [MemoryBreakdown()] * len(self.cut)
        for row, stages, device in zip(
            setting.actions, setting.stages_of, setting.cluster.devices, strict=True
        ):
            together = {stage: own[stage] for stage in stages}
            for stage, share in memory_shares(
                row, together, device.reserve_bytes
            ).items():
                memory[stage] = share
        return tuple(memory)

    @property
    def busy_fraction(self) -> tuple[float, ...]:
        """Share of the makespan in which each stage is worked on."""
        makespan_s = self.timeline.makespan_s
        busy_s = [0.0] * len(self.cut)
        for span in self.timeline.spans:
            busy_s[span.action.stage] += span.end_s - span.start_s
        return tuple(busy / makespan_s if makespan_s else 0.0 for busy in busy_s)


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
    parameters = parameters_of(setting, cut)
    optimizer_s = [
        sum(setting.optimizer_s(stage, parameters[stage]) for stage in stages)
        for stages in setting.stages_of
    ]
    return Candidate(
        setting=setting,
        cut=cut,
        recompute=recompute,
        times=times,
        peak_bytes=_peak_bytes(
            setting, stages_bytes(setting, cut, recompute, parameters)
        ),
        timeline=simulate_wired(setting.wiring, times),
        optimizer_s=max(optimizer_s),
        reduce_s=max(
            setting.reduce_s(sum(parameters[stage] for stage in stages))
            for stages in setting.stages_of
        ),
    )


@told_once
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
        of its card, and its transfers. Nobody needs the input gradient of the first
        stage, so PyTorch does all of its backward in W.
    """
    own = setting.layers[first : last + 1]
    again_s = sum(setting.layers[index].again_s for index in sorted(recomputed))
    fixed_s = setting.profile.device.step_overhead_s
    speed = setting.device(stage).speed
    backward_s = sum(x.backward_s for x in own) + again_s + fixed_s
    input_grad_s = sum(x.input_grad_s for x in own) + again_s + fixed_s
    weight_grad_s = sum(x.weight_grad_s for x in own) + fixed_s
    if stage == 0:
        input_grad_s, weight_grad_s = 0.0, backward_s
    return StageTimes(
        forward_s=(sum(x.forward_s for x in own) + fixed_s) / speed,
        backward_s=backward_s / speed,
        input_grad_s=input_grad_s / speed,
        weight_grad_s=weight_grad_s / speed,
        send_forward_s=setting.send_forward_s(stage, last),
        send_backward_s=setting.send_backward_s(stage, first),
    )


def parameters_of(setting: Setting, cut: Cut) -> tuple[int, ...]:
    """Parameters of every stage, those shared within its device counted once.

    Args:
        setting: All that is decided outside the cut.
        cut: First and last layer of every stage.

    Returns:
        How many; shared ones with the first stage of the device that has them.
    """
    parameters = [0] * len(cut)
    for stages in setting.stages_of:
        runs = [setting.layers[cut[s][0] : cut[s][1] + 1] for s in stages]
        counts = parameters_of_stages(runs, setting.profile.ties)
        for stage, count in zip(stages, counts, strict=True):
            parameters[stage] = count
    return tuple(parameters)


@told_once
def bytes_of(
    setting: Setting,
    stage: int,
    layers: tuple[int, int],
    recomputed: frozenset[int],
    num_parameters: int,
) -> StageBytes:
    """Memory of one stage for one microbatch, and what it holds all the time.

    Args:
        setting: All that is decided outside the cut.
        stage: From 0.
        layers: Its first and its last.
        recomputed: Indices of the layers that run F again before B.
        num_parameters: That count with it.

    Returns:
        Its memory.
    """
    first, last = layers
    return stage_bytes(
        setting.layers[first : last + 1],
        recomputed=[index in recomputed for index in range(first, last + 1)],
        num_parameters=num_parameters,
        optimizer=setting.optimizer,
        input_bytes=setting.input_bytes(first),
        output_bytes=setting.output_bytes(last),
        is_first=stage == 0,
    )


def stages_bytes(
    setting: Setting, cut: Cut, recompute: Recompute, parameters: Sequence[int]
) -> tuple[StageBytes, ...]:
    """Memory of all stages of a cut.

    Args:
        setting: All that is decided outside the cut.
        cut: First and last layer of every stage.
        recompute: Recomputed layers of every stage.
        parameters: Of every stage, see `parameters_of`.

    Returns:
        One entry a stage.
    """
    rows = zip(cut, recompute, parameters, strict=True)
    return tuple(bytes_of(setting, stage, *row) for stage, row in enumerate(rows))


def _peak_bytes(setting: Setting, own: Sequence[StageBytes]) -> tuple[int, ...]:
    """Of every device, from the memory of all stages."""
    return tuple(
        _peak_bytes_of(setting, device, tuple(own[stage] for stage in stages))
        for device, stages in enumerate(setting.stages_of)
    )


@told_once
def _peak_bytes_of(setting: Setting, device: int, own: tuple[StageBytes, ...]) -> int:
    """Of one device, from the memory of its stages."""
    stages = dict(zip(setting.stages_of[device], own, strict=True))
    reserve_bytes = setting.cluster.devices[device].reserve_bytes
    return setting.peak_states[device].peak_bytes(stages, reserve_bytes)
