"""A cut with its recompute choice, judged: times, memory, timeline.

What stages of one device hold adds up at one moment, so the memory of a stage is
its share of the fullest moment of its device; the reserve counts with the first.
"""

from dataclasses import dataclass

from planner.memory import activation_level, communication_bytes, stage_parameters
from planner.plan import MemoryBreakdown
from planner.simulate import StageTimes, Timeline, simulate
from planner.solve.setting import Cut, Recompute, Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A cut, its recompute choice and what they come to.

    Attributes:
        setting: In which it was judged.
        cut: First and last layer of every stage.
        recompute: Recomputed layers of every stage.
        times: Of every stage.
        memory: Of every stage, at the fullest moment of its device.
        timeline: When every action runs.
        optimizer_s: Optimizer step of the slowest device [s].
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
        """By how much each device is too small; below 0 where room is left."""
        setting = self.setting
        return tuple(
            sum(self.memory[stage].total for stage in stages) - device.memory_bytes
            for device, stages in zip(
                setting.cluster.devices, setting.stages_of, strict=True
            )
        )

    @property
    def fits(self) -> bool:
        """Whether every device is large enough."""
        return max(self.excess_bytes) <= 0

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
        memory=_memory(setting, cut, recompute, parameters),
        timeline=simulate(setting.actions, times),
        optimizer_s=max(optimizer_s),
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
    speed = setting.device(stage).speed
    return StageTimes(
        forward_s=(sum(x.forward_s for x in own) + fixed_s) / speed,
        backward_s=(sum(x.backward_s for x in own) + again_s + fixed_s) / speed,
        input_grad_s=(sum(x.input_grad_s for x in own) + again_s + fixed_s) / speed,
        weight_grad_s=(sum(x.weight_grad_s for x in own) + fixed_s) / speed,
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
    ties = setting.profile.ties
    parameters = [0] * len(cut)
    for stages in setting.stages_of:
        held: list[int] = []
        before = 0
        for stage in stages:
            first, last = cut[stage]
            held += range(first, last + 1)
            upto = stage_parameters([setting.layers[i] for i in held], ties)
            parameters[stage], before = upto - before, upto
    return tuple(parameters)


def _memory(
    setting: Setting, cut: Cut, recompute: Recompute, parameters: tuple[int, ...]
) -> tuple[MemoryBreakdown, ...]:
    levels = [
        activation_level(
            setting.layers[first : last + 1],
            [index in again for index in range(first, last + 1)],
        )
        for (first, last), again in zip(cut, recompute, strict=True)
    ]
    memory = [MemoryBreakdown()] * len(cut)
    for device, stages in enumerate(setting.stages_of):
        held, running = fullest(setting, device, [levels[stage] for stage in stages])
        for place, stage in enumerate(stages):
            kept, highest = levels[stage]
            items = {
                **static_items(setting, stage, cut[stage], parameters[stage]),
                "activations": (held[place] + (place == running)) * kept,
                "workspace": highest - kept if place == running else 0,
                "overhead": setting.device(stage).reserve_bytes if not place else 0,
            }
            memory[stage] = MemoryBreakdown(**items, total=sum(items.values()))
    return tuple(memory)


def fullest(
    setting: Setting, device: int, levels: list[tuple[int, int]]
) -> tuple[tuple[int, ...], int]:
    """The fullest moment of a device.

    Args:
        setting: Whose order counts.
        device: From 0.
        levels: What one microbatch keeps and the highest level it reaches, per
            stage of the device [bytes].

    Returns:
        Microbatches held beside the running one, per stage, and which stage runs.
    """
    running, held = max(
        setting.moments[device],
        key=lambda moment: (
            levels[moment.running][1]
            + sum(n * kept for n, (kept, _) in zip(moment.held, levels, strict=True))
        ),
    )
    return held, running


def static_items(
    setting: Setting, stage: int, layers: tuple[int, int], num_parameters: int
) -> dict[str, int]:
    """What a stage holds all the time.

    Args:
        setting: All that is decided outside the cut.
        stage: From 0.
        layers: Its first and its last.
        num_parameters: That count with it.

    Returns:
        Item of the memory to size [bytes].
    """
    spec = setting.optimizer
    first, last = layers
    return {
        "weights": num_parameters * spec.weight_bytes,
        "gradients": num_parameters * spec.gradient_bytes,
        "optimizer": num_parameters * spec.state_bytes,
        "communication": communication_bytes(
            num_microbatches=setting.num_microbatches,
            input_bytes=setting.input_bytes(first)
            if setting.crosses_before(stage)
            else 0,
            output_bytes=setting.output_bytes(last)
            if setting.crosses_after(stage)
            else 0,
        ),
    }
