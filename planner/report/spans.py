"""When every action of one step runs: predicted from a plan, measured in a run."""

from collections import defaultdict
from collections.abc import Sequence

from planner.plan import Plan, StagePrediction
from planner.run_record import Measured
from planner.schedule.actions import parse_action, parse_actions
from planner.schedule.validate import validate_actions
from planner.simulate import Span, StageTimes, simulate

Spans = tuple[Span, ...]


def predicted_spans(plan: Plan) -> Spans:
    """Simulate the plan's own order of actions with its own stage times.

    Args:
        plan: The plan.

    Returns:
        One span an action.

    Raises:
        ValueError: The order is malformed or can never run (`validate_actions`), or
            splits B into I and W and the plan does not say how long they take.
    """
    actions = parse_actions(plan.schedule.actions)
    split = {action.stage for row in actions for action in row if action.kind == "W"}
    times = [_stage_times(stage.predicted) for stage in plan.stages]
    if any(times[s].backward_s and not times[s].weight_grad_s for s in split):
        msg = "the plan holds no times for I and W"
        raise ValueError(msg)
    validate_actions(
        actions,
        num_stages=plan.num_stages,
        num_microbatches=plan.schedule.num_microbatches,
    )
    return tuple(simulate(actions, times).spans)


def measured_spans(plan: Plan, measured: Measured) -> Spans:
    """The spans that a run recorded, on the device that ran them.

    Args:
        plan: The plan that the run followed.
        measured: What it measured.

    Returns:
        One span an action; empty if any stage recorded none.

    Raises:
        ValueError: A recorded action is malformed.
    """
    if not all(stage.spans for stage in measured.stages):
        return ()
    return tuple(
        Span(
            device=device,
            action=parse_action(span.action),
            start_s=span.start_s,
            end_s=span.end_s,
        )
        for device, stage in zip(plan.device_of_stage, measured.stages, strict=True)
        for span in stage.spans
    )


def stages_of_devices(spans: Sequence[Span]) -> dict[int, tuple[int, ...]]:
    """Which stages each device works on.

    Args:
        spans: One span an action.

    Returns:
        Device to its stages, ascending.
    """
    stages: dict[int, set[int]] = defaultdict(set)
    for span in spans:
        stages[span.device].add(span.action.stage)
    return {device: tuple(sorted(held)) for device, held in stages.items()}


def makespan_s(spans: Sequence[Span]) -> float:
    """Start of the first action to end of the last.

    Args:
        spans: At least one span.

    Returns:
        The makespan [s].
    """
    return max(span.end_s for span in spans) - min(span.start_s for span in spans)


def bubble_fraction(spans: Sequence[Span], num_devices: int) -> float:
    """Share of the makespan in which devices compute nothing.

    Args:
        spans: At least one span.
        num_devices: How many devices there are.

    Returns:
        1 - busy / (devices x makespan), 0 if nothing takes time.
    """
    return sum(device_bubbles(spans, num_devices)) / num_devices


def device_bubbles(spans: Sequence[Span], num_devices: int) -> tuple[float, ...]:
    """Share of the makespan in which each device computes nothing.

    Args:
        spans: At least one span.
        num_devices: How many devices there are.

    Returns:
        1 - busy / makespan, one entry a device; 0 if nothing takes time.
    """
    busy_s = [0.0] * num_devices
    for span in spans:
        busy_s[span.device] += span.end_s - span.start_s
    whole_s = makespan_s(spans)
    return tuple(1 - busy / whole_s if whole_s else 0.0 for busy in busy_s)


def _stage_times(predicted: StagePrediction) -> StageTimes:
    return StageTimes(
        forward_s=predicted.forward_s,
        backward_s=predicted.backward_s,
        input_grad_s=predicted.input_grad_s,
        weight_grad_s=predicted.weight_grad_s,
        send_forward_s=predicted.send_forward_s,
        send_backward_s=predicted.send_backward_s,
    )
