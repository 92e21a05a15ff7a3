"""The search for the best cut of one setting: ILP proposes, simulator judges.

1. Simulate promising cuts, keep the paths that decided them (`paths`), and drop
   the columns that cannot beat the best of them (`relaxation`).
2. Let the ILP find the cut that is best as far as the paths tell (`ilp`),
   simulate it, add the path that decides it, and repeat.

The ILP's value is a lower bound for all cuts, the simulator's an upper bound for
the best. Each round either improves one of them or ends with both equal.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from planner.memory import PeakStates, at_boundaries
from planner.memory.peak_states import (
    GRADIENTS,
    HELD,
    IN,
    KEPT,
    NUM_TERMS,
    OUT,
    RUNS,
)
from planner.solve.candidate import Candidate, judge
from planner.solve.columns import Columns, ColumnTables
from planner.solve.ilp import TOLERANCE, Counts, MemoryLimit, Together, propose
from planner.solve.paths import Path, first_paths, path_of
from planner.solve.relaxation import (
    mixed_bound_s,
    path_cost,
    quicker_than,
    shortest_chains,
    step_bound_s,
)
from planner.solve.setting import Cut, Setting

_NUM_BISECTIONS = 40
# Bisection ends when bound and best plan are this close; the ILP does the rest.
_CLOSE = 1e-4
# Proposals that turned out slower than promised, before the proof is given up.
_MOST_FORBIDDEN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the search of one setting ends with.

    Attributes:
        best: The quickest plan known, if any: found here or given.
        bound_s: No plan of this setting is quicker than this or `best` [s];
            infinite if none fits.
        num_candidates: How many cuts were simulated.
        own: The quickest plan of this setting that was simulated, if any.
        others: Of a search of several settings, what was found in each.
    """

    best: Candidate | None
    bound_s: float
    num_candidates: int
    own: Candidate | None = None
    others: tuple[Candidate, ...] = ()


@dataclass(slots=True, kw_only=True)
class _State:
    """What the rounds of one search share."""

    tables: ColumnTables
    deadline: float
    best: Candidate | None
    paths: list[Path]
    own: Candidate | None = None
    judged: set[Cut] = field(default_factory=set)

    @property
    def limit_s(self) -> float:
        """Less what every cut of this setting has to exchange at the end."""
        exchange_s = self.tables.setting.exchange_s
        return self.best.step_s - exchange_s if self.best else float("inf")

    @property
    def target_s(self) -> float:
        """What a plan must reach to count as quicker."""
        return self.limit_s * (1 - TOLERANCE)

    @property
    def out_of_time(self) -> bool:
        return time.monotonic() > self.deadline

    @property
    def size(self) -> tuple[int, int]:
        setting = self.tables.setting
        return setting.num_stages, len(setting.layers)

    def judge(self, cut: Cut) -> bool:
        """Simulate a cut; tell whether that brought a new path."""
        if cut in self.judged:
            return False
        self.judged.add(cut)
        setting = self.tables.setting
        recompute = self.tables.recompute_of(cut)
        if recompute is None:
            return False
        found = judge(setting, cut, recompute)
        if found.fits and found.step_s - setting.exchange_s < self.target_s:
            self.best = found
        if found.fits and (self.own is None or found.step_s < self.own.step_s):
            self.own = found
        path = path_of(found.timeline.critical_path, setting.home)
        if path in self.paths:
            return False
        self.paths.append(path)
        return True

    def quicker(self, columns: Columns, limit_s: float) -> Columns:
        """Drop the columns that no plan of at most `limit_s` can hold."""
        if np.isinf(limit_s):
            return columns
        return quicker_than(columns, self.paths, limit_s, *self.size)


def search(
    setting: Setting,
    *,
    known: Candidate | None = None,
    deadline: float = float("inf"),
    layers_per_stage: Sequence[int] | None = None,
) -> Found:
    """Find the quickest plan of one setting that fits.

    Args:
        setting: All that is decided outside the cut.
        known: A plan to beat, of any setting.
        deadline: When to stop, on the clock of `time.monotonic` [s].
        layers_per_stage: A cut to take as it is; None to search.

    Returns:
        The plan and what is proven about it.
    """
    tables = ColumnTables(setting, layers_per_stage)
    paths = first_paths(setting.actions, setting.home, _send_shares(setting))
    state = _State(tables=tables, deadline=deadline, best=known, paths=paths)
    if setting.recompute == "auto":
        _tighten(state, tables.quick())
        columns, bound_s = _tighten(state, tables.optimistic())
        exact_bound_s = bound_s
        if not setting.is_coupled:
            columns, exact_bound_s = _tighten(state, tables.exact(columns))
            exact_bound_s = max(bound_s, exact_bound_s)
    else:
        columns = tables.without_choice(full=setting.recompute == "full")
        columns, bound_s = _tighten(state, columns)
        exact_bound_s = bound_s
    if setting.is_coupled and len(columns):
        mixed_s = mixed_bound_s(columns, state.paths, *state.size)
        bound_s = exact_bound_s = max(bound_s, min(mixed_s, state.limit_s))
        if layers_per_stage is None:
            _climb(state)
    exact_bound_s = _prove(state, columns, exact_bound_s)
    if tables.tries_all and tables.fronts.exact:
        bound_s = exact_bound_s
    return Found(
        best=state.best,
        bound_s=min(bound_s, state.limit_s) + setting.exchange_s,
        num_candidates=len(state.judged),
        own=state.own,
    )


def _send_shares(setting: Setting) -> list[float]:
    """Of a typical transfer to the next stage in the time of a typical stage."""
    stage_s = sum(layer.forward_s + layer.backward_s for layer in setting.layers)
    stage_s /= setting.num_stages
    sizes = sorted(layer.output_bytes for layer in setting.layers)
    typical_bytes = sizes[len(sizes) // 2]
    shares = []
    for stage in range(setting.num_stages - 1):
        link = setting.link_after(stage)
        transfer_s = link.transfer_s(typical_bytes) if link else 0.0
        shares.append(transfer_s / stage_s if stage_s else 1.0 if link else 0.0)
    return shares


def _tighten(state: _State, columns: Columns) -> tuple[Columns, float]:
    """Drive the bound and the best plan towards each other by bisection.

    Returns:
        The columns of plans that could beat the best one, and a lower bound for
        all plans of `columns`, at most the best plan's step time [s].
    """
    columns = state.quicker(columns, state.limit_s)
    cuts = _likely_cuts(state, columns)
    if not cuts:
        return columns, state.limit_s
    for cut in cuts:  # even without any time there must be a plan
        state.judge(cut)
    low_s = tried_s = _lowest_s(state, columns)
    high_s = state.limit_s
    for _ in range(_NUM_BISECTIONS):
        middle_s = tried_s * 2 if np.isinf(high_s) else (tried_s + high_s) / 2
        if high_s - tried_s < _CLOSE * high_s or state.out_of_time:
            break
        left = state.quicker(columns, middle_s)
        cuts = _likely_cuts(state, left)
        if not cuts:
            low_s = tried_s = middle_s
            continue
        for cut in cuts:
            state.judge(cut)
        reached_s = min(
            step_bound_s(left, state.paths, cut, state.tables.setting.home)
            for cut in cuts
        )
        if reached_s <= middle_s:
            high_s = min(high_s, reached_s)
        else:
            tried_s = middle_s
        high_s = min(high_s, state.limit_s)
    columns = state.quicker(columns, state.target_s)
    if not len(columns):
        return columns, state.limit_s
    return columns, min(low_s, state.limit_s)


def _lowest_s(state: _State, columns: Columns) -> float:
    """The largest of the bounds of single paths [s]."""
    return max(
        shortest_chains(columns, path_cost(columns, path), *state.size).length_s
        for path in state.paths
    )


def _likely_cuts(state: _State, columns: Columns) -> list[Cut]:
    """Cuts worth simulating: best for the mean of all paths, and most even."""
    mean = np.mean(np.array(state.paths, dtype=float), axis=0)
    unevenness = columns.times_s[:2].sum(axis=0) ** 2
    costs = (path_cost(columns, mean), unevenness)
    chains = (shortest_chains(columns, cost, *state.size) for cost in costs)
    return [chain.cut for chain in chains if chain.cut]


def _climb(state: _State) -> None:
    """Move single boundaries of the best cut of this setting while that helps."""
    setting = state.tables.setting
    legal = setting.profile.legal_cuts()
    while state.own is not None and not state.out_of_time:
        before = state.own
        ends = [last for _, last in before.cut]
        for place, by in product(range(len(ends) - 1), (-1, 1, -2, 2)):
            moved = ends[place] + by
            low = ends[place - 1] if place else -1
            if low < moved < ends[place + 1] and legal[moved]:
                around = [*ends[:place], moved, *ends[place + 1 :]]
                state.judge(
                    tuple(
                        zip([0, *(end + 1 for end in around[:-1])], around, strict=True)
                    )
                )
        if state.own is before:
            break


def _prove(state: _State, columns: Columns, bound_s: float) -> float:
    """Let the ILP propose until it has nothing better; return the bound [s].

    Where a device has several stages, a proposal may need more recompute than its
    columns promise, or not fit at all: it is then forbidden, and asked again.
    """
    setting = state.tables.setting
    together = _together(setting)
    forbidden: set[Cut] = set()
    while bound_s < state.target_s and not state.out_of_time:
        columns = state.quicker(columns, state.target_s)
        if not _likely_cuts(state, columns):
            return state.limit_s
        proposal = propose(
            columns,
            state.paths,
            state.size,
            scale_s=state.limit_s if state.best else max(bound_s, 1e-9),
            time_limit_s=max(state.deadline - time.monotonic(), 0.1),
            together=together,
            forbidden=forbidden,
        )
        if not proposal.cut and proposal.proven:  # nothing fits, or nothing is left
            return state.limit_s
        value_s = proposal.bound_s
        if proposal.proven and together is None:
            # The same number without the solver's rounding.
            value_s = step_bound_s(columns, state.paths, proposal.cut, setting.home)
        bound_s = max(bound_s, min(value_s, state.limit_s))
        if not proposal.cut:
            break
        if not state.judge(proposal.cut):
            if together is None or len(forbidden) >= _MOST_FORBIDDEN:
                break
            forbidden.add(proposal.cut)
    return bound_s


def _together(setting: Setting) -> Together | None:
    """What the stages of a device may need together; None if each is alone."""
    if not setting.is_coupled:
        return None
    # Stages of one device may share tied parameters, which no column can know.
    layers = {layer.name: layer for layer in setting.layers}
    shared = sum(
        max(layers[name].num_parameters for name in pair)
        for pair in setting.profile.ties
    )
    spare_bytes = shared * setting.optimizer.bytes_per_parameter
    limits = [
        _limit(states, state, device.budget_bytes + spare_bytes)
        for device, states in zip(
            setting.cluster.devices, setting.peak_states, strict=True
        )
        for state in states.states
    ]
    return Together(
        home=setting.home,
        limits=tuple(limits),
        saved_per_s=max(_saved_per_s(setting, i) for i in range(len(setting.layers))),
        speeds=tuple(setting.device(s).speed for s in range(setting.num_stages)),
    )


def _limit(states: PeakStates, state: tuple[int, ...], budget: int) -> MemoryLimit:
    counts, running = {}, None
    for place, stage in enumerate(states.stages):
        own = state[place * NUM_TERMS : (place + 1) * NUM_TERMS]
        in_forward = own[RUNS["F", False]]
        counts[stage] = Counts(
            kept=own[KEPT] + in_forward,
            held=own[HELD],
            outputs=own[OUT] + in_forward,
            input_grads=own[IN],
            gradients=own[GRADIENTS],
        )
        if own[RUNS["B", False]] or own[RUNS["I", False]]:
            running = stage
    return MemoryLimit(budget, counts, running)


def _saved_per_s(setting: Setting, index: int) -> float:
    """The most bytes that recompute of a layer saves for a second of it."""
    layer = setting.layers[index]
    (first,) = at_boundaries([layer], setting.input_bytes(index), 0)
    saved = max(
        own.activation_bytes - own.recompute_activation_bytes for own in (layer, first)
    )
    if saved <= 0:
        return 0.0
    return saved / layer.again_s if layer.again_s else float("inf")
