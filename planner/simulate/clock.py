"""The clock: every action starts when its device is free and its input is there.

A transfer starts when its producer ends. By default it keeps nobody busy, and
stages on the same device hand over without one:

    F0 F1 .. .. B0 B0 F2 B1 B1 .. B2 B2
    .. F0 B0 B0 F1 B1 B1 F2 B2 B2 .. ..

With d the duration of an action, c its transfer, both where it is at home:

    starts   max(end of the one before on the device, arrival of its input)
    ends     start + d
    arrives  end + c

`Transfers` adds what a transfer may cost besides: a sender that is kept busy goes
on at end + c, a receiver that is kept busy starts no sooner than c after the one
before, and on a queued link a transfer starts when the last one in its direction
has arrived.

Known limitations: on a queued link the latencies of two transfers do not overlap;
the two directions of a link never wait for each other (a measured link has its
bandwidth while both are used).
"""

from collections.abc import Sequence

from planner.schedule.actions import Actions
from planner.simulate.timeline import Timeline
from planner.simulate.times import OVERLAPPED, StageTimes, Transfers
from planner.simulate.wiring import Wiring, wire


def simulate(
    actions: Actions, times: Sequence[StageTimes], transfers: Transfers = OVERLAPPED
) -> Timeline:
    """Run a schedule on paper.

    Args:
        actions: Of every device; valid, see `validate_actions`.
        times: One entry a stage.
        transfers: Whom a transfer holds up.

    Returns:
        When every action runs.

    Raises:
        ValueError: The devices wait for each other for ever.
    """
    return simulate_wired(wire(actions), times, transfers)


def simulate_wired(
    wiring: Wiring, times: Sequence[StageTimes], transfers: Transfers = OVERLAPPED
) -> Timeline:
    """Run a schedule on paper whose wiring is known: the innermost loop of a search.

    Args:
        wiring: Of the order of actions, see `wire`.
        times: One entry a stage.
        transfers: Whom a transfer holds up.

    Returns:
        When every action runs.
    """
    duration_s = _durations(times)
    starts, ends, makers = _run(wiring, duration_s, times, transfers)
    return Timeline(
        wiring=wiring,
        starts_s=tuple(tuple(map(starts.__getitem__, row)) for row in wiring.rows),
        ends_s=tuple(tuple(map(ends.__getitem__, row)) for row in wiring.rows),
        busy_s=_busy(wiring, duration_s),
        makers=tuple(makers),
    )


def _run(
    wiring: Wiring,
    duration_s: Sequence[float],
    times: Sequence[StageTimes],
    transfers: Transfers,
) -> tuple[list[float], list[float], list[int]]:
    """Start, end, and maker of the message that was waited for, step by step.

    Numbers and lists, no objects; what is optional costs one test a step.
    """
    send_s, receive_s = _transfer_times(wiring.home, times)
    link = _links(wiring.home)
    plain = transfers == OVERLAPPED
    sender_pays = transfers.occupy != "neither"
    receiver_pays = transfers.occupy == "both"
    starts: list[float] = []
    ends: list[float] = []
    arrivals: list[float] = []
    makers: list[int] = []
    free = [0.0] * len(wiring.actions)
    link_free: dict[tuple[int, int], float] = {}
    for device, code, maker in wiring.steps:
        now_s = free[device]
        if receiver_pays:
            now_s += receive_s[code]
        waited_for = -1
        if maker >= 0 and arrivals[maker] > now_s:
            now_s, waited_for = arrivals[maker], maker
        starts.append(now_s)
        now_s += duration_s[code]
        ends.append(now_s)
        makers.append(waited_for)
        if plain:
            arrivals.append(now_s + send_s[code])
            free[device] = now_s
            continue
        leaves_s = now_s
        if transfers.queued and send_s[code] > 0:
            leaves_s = max(leaves_s, link_free.get(link[code], 0.0))
            link_free[link[code]] = leaves_s + send_s[code]
        arrivals.append(leaves_s + send_s[code])
        free[device] = now_s + send_s[code] if sender_pays else now_s
    return starts, ends, makers


def _durations(times: Sequence[StageTimes]) -> tuple[float, ...]:
    """By code."""
    return tuple(
        value_s
        for time in times
        for value_s in (
            time.forward_s,
            time.backward_s,
            time.input_grad_s,
            time.weight_grad_s,
        )
    )


def _transfer_times(
    home: Sequence[int], times: Sequence[StageTimes]
) -> tuple[list[float], list[float]]:
    """By code: the transfers of what an action makes and of what it takes."""
    send_s: list[float] = []
    receive_s: list[float] = []
    last = len(home) - 1
    for stage, time in enumerate(times):
        has_before = stage > 0 and home[stage - 1] != home[stage]
        has_after = stage < last and home[stage + 1] != home[stage]
        output_s = time.send_forward_s if has_after else 0.0
        gradient_s = time.send_backward_s if has_before else 0.0
        send_s += [output_s, gradient_s, gradient_s, 0.0]
        input_s = times[stage - 1].send_forward_s if has_before else 0.0
        taken_s = times[stage + 1].send_backward_s if has_after else 0.0
        receive_s += [input_s, taken_s, taken_s, 0.0]
    return send_s, receive_s


def _links(home: Sequence[int]) -> list[tuple[int, int]]:
    """By code: sending and receiving device of what an action makes."""
    links: list[tuple[int, int]] = []
    for stage, device in enumerate(home):
        after = home[stage + 1] if stage + 1 < len(home) else device
        before = home[stage - 1] if stage > 0 else device
        links += [(device, after), (device, before), (device, before), (device, -1)]
    return links


def _busy(wiring: Wiring, duration_s: Sequence[float]) -> tuple[float, ...]:
    codes = [code for _, code, _ in wiring.steps]
    return tuple(sum(duration_s[codes[place]] for place in row) for row in wiring.rows)
