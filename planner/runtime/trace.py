"""The measured step as a trace: open it in Perfetto or chrome://tracing.

One track a device, one slice an action, and an arrow from the action that makes an
output or a gradient to the one on another device that takes it. Times are in
microseconds, as the format wants. Source of the format: "Trace Event Format".
"""

from collections.abc import Iterator, Sequence

from planner.plan import Plan
from planner.run_record import Measured, MeasuredSpan
from planner.schedule.actions import Action, parse_action
from planner.schedule.dependencies import Token, token_made_by, tokens_needed_by

_US = 1e6
# All tracks belong to one process; a thread 0 would be drawn as the idle one.
_PID = 1
_TITLES = {
    "F": "forward",
    "B": "backward",
    "I": "backward for the input",
    "W": "backward for the weights",
}

Event = dict[str, object]


def trace(plan: Plan, measured: Measured) -> dict[str, object]:
    """The measured step in Chrome's trace format.

    Args:
        plan: The plan.
        measured: What was measured.

    Returns:
        JSON data.
    """
    spans = {
        parse_action(span.action): span
        for stage in measured.stages
        for span in stage.spans
    }
    home = plan.device_of_stage
    slices = [_slice(home, action, span) for action, span in spans.items()]
    events = [*_names(plan), *slices, *_arrows(home, spans)]
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _names(plan: Plan) -> Iterator[Event]:
    """What the tracks are called, and in which order they stand."""
    name = f"{plan.model.id}, {plan.schedule.name}"
    yield _named("process_name", 0, {"name": name})
    for device in range(plan.num_devices):
        yield _named("thread_name", device, {"name": _track(plan, device)})
        yield _named("thread_sort_index", device, {"sort_index": device})


def _named(what: str, device: int, args: dict[str, object]) -> Event:
    return {"ph": "M", "name": what, "pid": _PID, "tid": device + 1, "args": args}


def _track(plan: Plan, device: int) -> str:
    """Such as `cpu:0: stages 0 and 3`."""
    stages = plan.stages_of_device(device)
    numbers = " and ".join(str(stage.index) for stage in stages)
    return f"{stages[0].device}: stage{'s' if len(stages) > 1 else ''} {numbers}"


def _slice(home: Sequence[int], action: Action, span: MeasuredSpan) -> Event:
    return {
        "ph": "X",
        "name": span.action,
        "cat": _TITLES[action.kind],
        "pid": _PID,
        "tid": home[action.stage] + 1,
        "ts": span.start_s * _US,
        "dur": (span.end_s - span.start_s) * _US,
        "args": {"stage": action.stage, "microbatch": action.microbatch},
    }


def _arrows(home: Sequence[int], spans: dict[Action, MeasuredSpan]) -> Iterator[Event]:
    """One pair of events for every transfer from device to device."""
    makers: dict[Token, Action] = {}
    for action in spans:
        if token := token_made_by(action):
            makers[token] = action
    number = 0
    for action, span in spans.items():
        for token in tokens_needed_by(action, len(home)):
            if token not in makers or home[token.stage] == home[action.stage]:
                continue
            number += 1
            made = spans[makers[token]]
            both = {"name": "transfer", "cat": "transfer", "pid": _PID, "id": number}
            # An arrow hangs on the slice that is open at its time: an end is not.
            leaves_us = (made.start_s + 3 * made.end_s) / 4 * _US
            begin = {"ph": "s", "tid": home[token.stage] + 1, "ts": leaves_us}
            end = {"ph": "f", "tid": home[action.stage] + 1, "ts": span.start_s * _US}
            yield {**both, **begin}
            yield {**both, **end, "bp": "e"}
