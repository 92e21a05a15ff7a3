"""What others would do: the splits people use today, on the same profile.

    even layers        the same number of blocks on every card, the embedding on
                       the first and the head on the last (PyTorch by hand,
                       torchtitan, NeMo AutoModel)
    equal parameters   the largest stage as small as possible, counted in
                       parameters (DeepSpeed's `parameters`)
    equal time         the slowest stage as quick as possible, memory and
                       schedule aside (torchgpipe's balance by time)

They get the plan's schedule and microbatches. Recompute is all or nothing, as it
is used: none where that fits, else full where the user allows it.
"""

from collections.abc import Sequence

import numpy as np

from planner.plan import Baseline
from planner.solve.candidate import Candidate, judge
from planner.solve.columns import Floats
from planner.solve.setting import Cut, Setting


def baselines(setting: Setting) -> tuple[Baseline, ...]:
    """Score the splits that people use.

    Args:
        setting: Of the plan they stand beside.

    Returns:
        One entry a split, whether it fits or not.
    """
    scored = {name: scored_cut(setting, cut) for name, cut in usual_cuts(setting)}
    return tuple(
        Baseline(
            name=name,
            layers_per_stage=tuple(last - first + 1 for first, last in candidate.cut),
            step_s=candidate.step_s,
            fits=candidate.fits,
        )
        for name, candidate in scored.items()
    )


def usual_cuts(setting: Setting) -> tuple[tuple[str, Cut], ...]:
    """The splits by name; see the module.

    Args:
        setting: Layers and cards.

    Returns:
        Name and cut of each.
    """
    return (
        ("even layers", even_cut(setting)),
        ("equal parameters", smallest_largest(setting, _parameter_weights(setting))),
        ("equal time", smallest_largest(setting, _time_weights(setting))),
    )


def scored_cut(setting: Setting, cut: Cut) -> Candidate:
    """Simulate a split with recompute all or nothing.

    Args:
        setting: All that is decided outside the cut.
        cut: First and last layer of every stage.

    Returns:
        Without recompute if that fits or nothing does, else with full recompute.
    """
    nothing: frozenset[int] = frozenset()
    everything = [
        frozenset(i for i in range(first, last + 1) if setting.may_recompute(i))
        for first, last in cut
    ]
    full = judge(setting, cut, tuple(everything))
    if setting.recompute == "full":
        return full
    plain = judge(setting, cut, (nothing,) * len(cut))
    return full if full.fits and not plain.fits else plain


def even_cut(setting: Setting) -> Cut:
    """As many blocks on every card as on any other, as far as possible.

    Args:
        setting: Layers and cards.

    Returns:
        The legal cut whose squared numbers of blocks have the smallest sum;
        embedding and head count only if there are too few blocks.
    """
    kinds = [layer.kind for layer in setting.layers]
    weights = [0 if kind in ("embedding", "head") else 1 for kind in kinds]
    if sum(weights) < setting.num_stages:
        weights = [1] * len(weights)
    own = _stage_weights(setting, weights)
    return _cheapest(own**2, setting.num_stages)


def smallest_largest(setting: Setting, weights: Sequence[float]) -> Cut:
    """The cut whose heaviest stage is lightest.

    Args:
        setting: Layers and cards.
        weights: Of each layer.

    Returns:
        Among the legal cuts with the lightest heaviest stage, the most even one.
    """
    own = _stage_weights(setting, weights)
    heaviest = _smallest_largest_weight(own, setting.num_stages)
    own = np.where(own <= heaviest * (1 + 1e-9), own, np.inf)
    return _cheapest(own**2, setting.num_stages)


def _stage_weights(setting: Setting, weights: Sequence[float]) -> Floats:
    """Weight of every legal stage [first, last]; infinite where none is legal."""
    gaps = np.array([True, *setting.profile.legal_cuts(), True])
    ends = np.concatenate([[0.0], np.cumsum(weights)])
    own = ends[None, 1:] - ends[:-1, None]
    legal = np.triu(gaps[:-1, None] & gaps[None, 1:])
    return np.where(legal, np.maximum(own, 0.0), np.inf)


def _smallest_largest_weight(own: Floats, num_stages: int) -> float:
    count = len(own)
    reached = np.full(count + 1, np.inf)
    reached[0] = 0.0
    for _ in range(num_stages):
        after = np.full(count + 1, np.inf)
        after[1:] = np.maximum(reached[:count, None], own).min(axis=0)
        reached = after
    return float(reached[count])


def _cheapest(cost: Floats, num_stages: int) -> Cut:
    """The cut with the smallest sum of costs; ties go to longer early stages."""
    count = len(cost)
    reached = np.full(count + 1, np.inf)
    reached[0] = 0.0
    begins = []
    for _ in range(num_stages):
        reach = reached[:count, None] + cost
        begins.append(count - 1 - reach[::-1].argmin(axis=0))
        reached = np.concatenate([[np.inf], reach.min(axis=0)])
    cut, last = [], count - 1
    for begin in reversed(begins):
        first = int(begin[last])
        cut.append((first, last))
        last = first - 1
    return tuple(reversed(cut))


def _parameter_weights(setting: Setting) -> list[float]:
    return [float(layer.num_parameters) for layer in setting.layers]


def _time_weights(setting: Setting) -> list[float]:
    return [layer.forward_s + layer.backward_s for layer in setting.layers]
