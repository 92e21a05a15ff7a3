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

from planner.plan import Baseline
from planner.solve.setting import Candidate, Cut, Setting, judge, parameters_of


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
    return _best(setting, weights, power=2)


def smallest_largest(setting: Setting, weights: Sequence[float]) -> Cut:
    """The cut whose heaviest stage is lightest.

    Args:
        setting: Layers and cards.
        weights: Of each layer.

    Returns:
        Among the legal cuts with the lightest heaviest stage, the most even one.
    """
    return _best(setting, weights, power=None)


def _best(setting: Setting, weights: Sequence[float], *, power: int | None) -> Cut:
    """Dynamic programming over (stage, gap); ties go to full earlier stages.

    Without a power a cut is judged by its heaviest stage first and the sum of
    squares second, with it by the sum of powers alone.
    """
    count, num_stages = len(weights), setting.num_stages
    ends = [0.0]
    for weight in weights:
        ends.append(ends[-1] + weight)
    gaps = (True, *setting.profile.legal_cuts(), True)
    best: list[dict[int, tuple[float, float, Cut]]] = [{0: (0.0, 0.0, ())}]
    for stage in range(num_stages):
        row: dict[int, tuple[float, float, Cut]] = {}
        targets = [count] if stage == num_stages - 1 else range(1, count)
        for gap in targets:
            options = [
                (
                    max(largest, ends[gap] - ends[begin]) if power is None else 0.0,
                    total + (ends[gap] - ends[begin]) ** (power or 2),
                    -begin,
                    cut,
                )
                for begin, (largest, total, cut) in best[-1].items()
                if begin < gap and gaps[gap]
            ]
            if options:
                largest, total, negative, cut = min(options)
                row[gap] = (largest, total, (*cut, (-negative, gap - 1)))
        best.append(row)
    return best[-1][count][2]


def _parameter_weights(setting: Setting) -> list[float]:
    return [float(parameters_of(setting, i, i)) for i in range(len(setting.layers))]


def _time_weights(setting: Setting) -> list[float]:
    return [layer.forward_s + layer.backward_s for layer in setting.layers]
