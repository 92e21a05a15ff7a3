"""Repeat what is timed until its median can be trusted.

A round is everything that is timed, once each; rounds follow one another, so
that a slow spell of the machine meets all parts of it alike. Short calls are
not timed several at a time: the clock is finer than any of them, and on a card
the time between two short ones is one a run has to wait for, too.

The spread is the range between the quartiles over the median, which a few slow
calls among many do not change.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

# Another process on the device or a card that slows down when it is hot.
WIDE = 0.10

_NUM_WARMUP_ROUNDS = 2
_NARROW = 0.03
_FEWEST, _MANY, _MOST = 5, 10, 50
_BUDGET_S = 2.0
_MORE = 2

# Seconds by the name of what took them; more than one if a round did it twice.
Round = Mapping[str, Sequence[float]]
Samples = dict[str, list[float]]


def spread(samples: Sequence[float]) -> float:
    """How far samples are apart.

    Args:
        samples: Of the same thing [s].

    Returns:
        Interquartile range over the median; 0 of a single sample or of nothing.
    """
    median = statistics.median(samples)
    if len(samples) < 2 or not median:
        return 0.0
    lower, _, upper = statistics.quantiles(samples, n=4, method="inclusive")
    return (upper - lower) / median


def sample(play: Callable[[], Round], *, judged: Sequence[str]) -> Samples:
    """Play rounds until the spread is narrow or time is up, once more if it is wide.

    Args:
        play: Plays one round; the first few warm up and do not count.
        judged: Names whose spread matters.

    Returns:
        All samples of every name [s], of the try with the narrower spread.
    """
    for _ in range(_NUM_WARMUP_ROUNDS):
        play()

    def widest(found: Samples) -> float:
        return max(spread(found[name]) for name in judged)

    found = _played(play, widest, more=1)
    if widest(found) <= WIDE:
        return found
    return min(found, _played(play, widest, more=_MORE), key=widest)


def _played(
    play: Callable[[], Round], widest: Callable[[Samples], float], *, more: int
) -> Samples:
    """One try, of at most `more` times as many rounds and as much time as usual."""
    found: Samples = {}
    begin_s = time.perf_counter()
    for count in range(1, _MOST * more + 1):
        for name, seconds in play().items():
            found.setdefault(name, []).extend(seconds)
        late = time.perf_counter() - begin_s > _BUDGET_S * more
        if count >= _FEWEST and late:
            break
        if count >= _MANY and widest(found) <= _NARROW:
            break
    return found
