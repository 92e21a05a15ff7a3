"""A device's row of actions, made from its queues of forwards and backwards.

A warm-up of 3 forwards, then pairs:

    F F F F I F I F I I I

and with its W, of which 1 waits for a later place:

    F F F F I F I W F I W I W I W W
"""

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain

from planner.schedule.actions import Action


def alternate(
    forwards: Sequence[Action], backwards: Sequence[Action], num_warmup: int
) -> tuple[Action, ...]:
    """A warm-up of forwards, then one forward and one backward in turn.

    Args:
        forwards: In the order in which they are done.
        backwards: As many.
        num_warmup: Forwards before the first pair; all of them if there are fewer.

    Returns:
        The row; the backwards without a partner are the cool-down.
    """
    warmup, steady = forwards[:num_warmup], forwards[num_warmup:]
    pairs = zip(steady, backwards[: len(steady)], strict=True)
    return (*warmup, *chain.from_iterable(pairs), *backwards[len(steady) :])


def delay_weights(row: Iterable[Action], num_waiting: int) -> tuple[Action, ...]:
    """Add W to a row: the oldest one after every I, but some of them late.

    Args:
        row: Actions without W.
        num_waiting: How many W wait until all I are done; they keep activations.

    Returns:
        The row with one W for every I.
    """
    waiting: deque[Action] = deque()
    done: list[Action] = []
    for action in row:
        done.append(action)
        if action.kind == "I":
            waiting.append(Action(action.stage, "W", action.microbatch))
            if len(waiting) > num_waiting:
                done.append(waiting.popleft())
    return (*done, *waiting)
