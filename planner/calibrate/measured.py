"""What the last step of a run tells: its actions, the pauses between, the transfers.

    device 0   |__0F0__|p|__0F1__|p|__0B0__|        p  pause: nothing was missing
    device 1            t  |__1F0__|p|__1B0__|      t  transfer: 1F0 waited for it

An action is as long as its median of all microbatches and a pause, which is the
median over all actions that needed nothing from another device. A transfer can be
told where an action had nothing else to wait for: its device was done before what it
needed was made. Then the time in between is a pause and the transfer.

Known limitations: times are of the one step whose actions a run keeps, its last.
"""

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from planner.plan import Plan
from planner.run_record import Measured, MeasuredSpan
from planner.schedule.actions import Action, Kind, parse_action
from planner.schedule.dependencies import Token, token_made_by, tokens_needed_by


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One transfer that an action waited for.

    Attributes:
        pair: The lower of its two neighbouring devices.
        token: What was sent.
        time_s: How long it took [s].
    """

    pair: int
    token: Token
    time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimes:
    """How long things took.

    Attributes:
        action_s: By stage and kind, where such an action ran: pause included [s].
        pause_s: Between two actions of a device, when nothing was missing [s].
        transfers: Those that can be told, between neighbouring devices.
    """

    action_s: Mapping[tuple[int, Kind], float]
    pause_s: float
    transfers: tuple[Transfer, ...]


def run_times(plan: Plan, measured: Measured) -> RunTimes:
    """Read the times of a run.

    Args:
        plan: That it followed.
        measured: By the run; every action of the plan has its span.

    Returns:
        Its times.
    """
    rows = _rows(plan, measured)
    home = plan.device_of_stage
    pauses = [
        after.start_s - before.end_s
        for device, row in enumerate(rows)
        for (_, before), (action, after) in pairwise(row)
        if all(home[t.stage] == device for t in _needed(action, plan))
    ]
    pause_s = statistics.median(pauses) if pauses else 0.0
    return RunTimes(
        action_s={
            (action.stage, action.kind): pause_s + _median_s(measured, action)
            for row in rows
            for action, _ in row
        },
        pause_s=pause_s,
        transfers=tuple(_transfers(plan, rows, pause_s)),
    )


_Row = list[tuple[Action, MeasuredSpan]]


def _rows(plan: Plan, measured: Measured) -> list[_Row]:
    """The actions of every device, in the order in which it does them."""
    spans = {span.action: span for stage in measured.stages for span in stage.spans}
    return [
        [(parse_action(text), spans[text]) for text in row]
        for row in plan.schedule.actions
    ]


def _needed(action: Action, plan: Plan) -> tuple[Token, ...]:
    return tokens_needed_by(action, plan.num_stages)


def _median_s(measured: Measured, action: Action) -> float:
    stage = measured.stages[action.stage]
    medians: dict[Kind, float] = {
        "F": stage.forward_s,
        "B": stage.backward_s,
        "I": stage.input_grad_s,
        "W": stage.weight_grad_s,
    }
    return medians[action.kind]


def _transfers(plan: Plan, rows: list[_Row], pause_s: float) -> Iterator[Transfer]:
    home = plan.device_of_stage
    made_s = {
        token: span.end_s
        for row in rows
        for action, span in row
        if (token := token_made_by(action))
    }
    for device, row in enumerate(rows):
        done_s = float("-inf")
        for action, span in row:
            for token in _needed(action, plan):
                maker = home[token.stage]
                if abs(maker - device) == 1 and done_s <= made_s[token]:
                    time_s = max(span.start_s - made_s[token] - pause_s, 0.0)
                    pair = min(maker, device)
                    yield Transfer(pair=pair, token=token, time_s=time_s)
            done_s = span.end_s
