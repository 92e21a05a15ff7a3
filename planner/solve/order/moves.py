"""Small changes of an order that could shorten its critical path.

The critical path runs through blocks of actions on one device; it enters a block
at its first action and leaves it at its last.

    .. F3 [I1 W0 F4 W1] .. ..      another action first, or the last one earlier:
    .. .. ..  ..  ..  [F4 I2] ..   W0 behind F4 or into the next gap, F4 before I1

Any other change leaves that path as long as it is. Where I and W take longer
than B, joining and parting them are changes, too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from planner.solve.order.clock import Clocked
from planner.solve.order.problem import B, F, I, OrderProblem, W

# How many gaps behind or before a block a W may go to.
_NUM_GAPS = 3


@dataclass(frozen=True, slots=True)
class Block:
    """Neighbours on one device that the critical path runs through.

    Attributes:
        device: Whose row.
        first: Position of its first action.
        last: Position of its last action.
    """

    device: int
    first: int
    last: int


class Change(NamedTuple):
    """One small change of a row, not yet made.

    Attributes:
        device: Whose row.
        what: `move` the action at `source` to `target`, `join` the W at `source`
            with its I to B, or `part` the B at `source` into I and, at `target`, W.
        source: A position.
        target: A position of the changed row.
    """

    device: int
    what: Literal["move", "join", "part"]
    source: int
    target: int


def blocks_of(clocked: Clocked) -> list[Block]:
    """Divide the critical path of an order.

    Args:
        clocked: The order on the clock.

    Returns:
        Its blocks, first to last.
    """
    blocks: list[Block] = []
    for device, position in clocked.critical_path():
        before = blocks[-1] if blocks else None
        if before and (before.device, before.last) == (device, position - 1):
            blocks[-1] = Block(device, before.first, position)
        else:
            blocks.append(Block(device, position, position))
    return blocks


def changes_of(
    problem: OrderProblem, row: tuple[int, ...], block: Block, clocked: Clocked
) -> Iterator[Change]:
    """All small changes of one block.

    Args:
        problem: Times, homes and memory.
        row: Of the block's device.
        block: Through which the critical path runs.
        clocked: The order on the clock.

    Yields:
        Changes of that row; what they make may be impossible or not fit.
    """
    device, first, last = block.device, block.first, block.last
    for position in range(first, last):
        if row[position] != row[last]:
            yield Change(device, "move", position, last)
            yield Change(device, "move", last, position)
        if position > first and row[position] != row[first]:
            yield Change(device, "move", position, first)
    for position in range(first, last + 1):
        kind = row[position] & 3
        if kind == W:
            yield Change(device, "join", position, position)
        elif kind == B and problem.may_split(row[position] >> 2):
            for target in (position, last, *_gaps_after(clocked, block)):
                yield Change(device, "part", position, target + 1)
        if kind in (W, F):
            gaps = _gaps_before(clocked, block) + _gaps_after(clocked, block)
            for gap in gaps if kind == W else gaps[:1]:
                yield Change(device, "move", position, gap)


def apply(row: tuple[int, ...], change: Change) -> tuple[int, ...]:
    """Make a change.

    Args:
        row: Of the change's device.
        change: From `changes_of`.

    Returns:
        The row that results; the same where there is nothing to join.
    """
    source, target = change.source, change.target
    if change.what == "join":
        return _joined(row, source)
    if change.what == "part":
        base = row[source] - B
        row = (*row[:source], base + I, base + W, *row[source + 1 :])
        source += 1
    rest = row[:source] + row[source + 1 :]
    return (*rest[:target], row[source], *rest[target:])


def _joined(row: tuple[int, ...], position: int) -> tuple[int, ...]:
    """W goes back to its I, which becomes B."""
    base = row[position] - W
    number = row[:position].count(base + W)
    at = -1
    for _ in range(number + 1):
        at = row.index(base + I, at + 1)
    return (*row[:at], base + B, *row[at + 1 : position], *row[position + 1 :])


def _gaps_after(clocked: Clocked, block: Block) -> list[int]:
    """Positions behind a block before which the device waits, and the last one."""
    makers = clocked.waited_for[block.device]
    gaps = []
    for position in range(block.last + 1, len(makers)):
        if makers[position] is not None:
            gaps.append(position - 1)
            if len(gaps) == _NUM_GAPS:
                break
    return [*gaps, len(makers) - 1]


def _gaps_before(clocked: Clocked, block: Block) -> list[int]:
    """Positions up to a block before which the device waits, latest first."""
    makers = clocked.waited_for[block.device]
    gaps = []
    for position in range(block.first, 0, -1):
        if makers[position] is not None:
            gaps.append(position)
            if len(gaps) == _NUM_GAPS:
                break
    return gaps
