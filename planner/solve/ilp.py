"""The best cut as an integer linear program, in column form.

    use[s, i, j]    1 if stage s runs from layer i to layer j, else 0
    forward_s ..    times of stage s: sums over its columns
    makespan        at least as long as every known path
    optimizer       at least as long as every device's optimizer steps

    minimise  makespan + optimizer

Columns fit their device alone. Where a device has several stages, they must fit
together, and recompute is part of the program:

    again_s, kept_s    time that recompute adds to B and I of stage s, and what one
                       microbatch then leaves: less by at most `saved_per_s * again_s`

    at each moment of a device:  sum over its stages of static + kept, held, gradients
                                 and what is sent + rise of the B or I that runs
                                 <=  budget

Recompute is whole layers in truth, so a cut may need a little more than the program
says: cuts that were seen to are forbidden one by one.

The columns that are used form a chain from gap to gap: as many end in a gap as
begin there. Times are divided by the step time of a known plan, so that all
coefficients are near 1. HiGHS solves it; CBC, which comes with PuLP, where HiGHS
is missing.
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from planner.solve.columns import Columns
from planner.solve.paths import PARTS, Path
from planner.solve.setting import Cut

# Larger differences of step times are told apart; smaller ones are rounding.
TOLERANCE = 1e-7

# Where stages share a device the program is not exact anyway: near enough at first.
_ROUGH_GAP = 1e-3
# Recompute that takes no time saves all it can.
_STEEPEST = 1e6
_AFTER_RECOMPUTE = ("backward_s", "input_grad_s")
_IN_FIRST_STAGE = ("backward_s", "weight_grad_s")


class Counts(NamedTuple):
    """How many of each size of a column are there at one moment.

    Attributes:
        kept: Microbatches kept from F to B or I.
        held: Microbatches held from I to W.
        outputs: On their way, or handed on.
        input_grads: On their way.
        gradients: 1 if the parameters have theirs.
    """

    kept: int
    held: int
    outputs: int
    input_grads: int
    gradients: int


class MemoryLimit(NamedTuple):
    """What the stages of one device may need together.

    Attributes:
        budget_bytes: Of the device [bytes].
        counts: By stage of the device, how many there are of what a column takes.
        running: The stage that runs B or I; None for another action.
    """

    budget_bytes: int
    counts: dict[int, Counts]
    running: int | None


class Together(NamedTuple):
    """What to know where a device has several stages.

    Attributes:
        home: Which device works on each stage.
        limits: What the stages of each device may need at each moment.
        saved_per_s: The most bytes that recompute saves for a second of it.
        speeds: Of the device of each stage.
    """

    home: tuple[int, ...]
    limits: tuple[MemoryLimit, ...]
    saved_per_s: float
    speeds: tuple[float, ...]


class Proposal(NamedTuple):
    """What the solver says.

    Attributes:
        cut: The best cut that it found; empty if none.
        bound_s: No cut is quicker, as far as the known paths tell [s].
        proven: Whether the cut is the best for the known paths.
    """

    cut: Cut
    bound_s: float
    proven: bool


def propose(
    columns: Columns,
    paths: Sequence[Path],
    size: tuple[int, int],
    *,
    scale_s: float,
    time_limit_s: float,
    together: Together | None = None,
    forbidden: Collection[Cut] = (),
    solver: str = "auto",
) -> Proposal:
    """Find the cut whose longest known path and slowest optimizer are shortest.

    Args:
        columns: What may be used.
        paths: Lower bounds of the makespan.
        size: Number of stages and of layers.
        scale_s: Step time of a known plan [s].
        time_limit_s: When to give up [s].
        together: Where a device has several stages; None for one each.
        forbidden: Cuts not to propose.
        solver: `highs`, `cbc` or `auto`: the first that works.

    Returns:
        The cut, and what is proven.
    """
    import pulp  # only now: it takes half a second

    problem = pulp.LpProblem("best_cut", pulp.LpMinimize)
    indices = (columns.stage.tolist(), columns.first.tolist(), columns.last.tolist())
    use = {
        key: problem.add_variable("use_{}_{}_{}".format(*key), 0, 1, pulp.LpInteger)
        for key in zip(*indices, strict=True)
    }
    _add_chain(pulp, problem, use, size)
    makespan = problem.add_variable("makespan", 0, None, pulp.LpContinuous)
    optimizer = problem.add_variable("optimizer", 0, None, pulp.LpContinuous)
    problem.setObjective(makespan + optimizer)
    again = []
    if together:
        again = _add_memory(pulp, problem, use, columns, together, scale_s)
    stage_times = _add_stage_times(pulp, problem, use, columns, size[0], scale_s, again)
    home = together.home if together else range(size[0])
    _add_optimizer(pulp, problem, optimizer, stage_times.pop(), home)
    _add_forbidden(pulp, problem, use, forbidden)
    _add_paths(pulp, problem, makespan, stage_times, paths)
    gap = _ROUGH_GAP if together else TOLERANCE / 10
    problem.solve(_solver(pulp, solver, time_limit_s, gap))
    return _proposal(pulp, problem, use, size[0], gap, scale_s)


def _proposal(
    pulp: Any,
    problem: Any,
    use: dict[tuple[int, int, int], Any],
    num_stages: int,
    gap: float,
    scale_s: float,
) -> Proposal:
    # `status` says Optimal for any plan found before the time limit, proven or
    # not; only `sol_status` tells the two apart.
    proven = problem.sol_status == pulp.LpSolutionOptimal
    if problem.sol_status == pulp.LpSolutionInfeasible:
        return Proposal((), float("inf"), True)
    if not proven and problem.sol_status != pulp.LpSolutionIntegerFeasible:
        return Proposal((), 0.0, False)
    chosen = [
        max((key for key in use if key[0] == s), key=lambda key: use[key].value() or 0)
        for s in range(num_stages)
    ]
    cut = tuple((first, last) for _, first, last in chosen)
    return Proposal(cut, _bound(problem, proven, gap) * scale_s, proven)


def _add_forbidden(
    pulp: Any,
    problem: Any,
    use: dict[tuple[int, int, int], Any],
    forbidden: Collection[Cut],
) -> None:
    for number, cut in enumerate(forbidden):
        keys = {(s, *layers) for s, layers in enumerate(cut)}
        if keys <= use.keys():
            used = pulp.lpSum(use[key] for key in sorted(keys))
            problem += used <= len(cut) - 1, f"not_cut_{number}"


def _add_paths(
    pulp: Any,
    problem: Any,
    makespan: Any,
    stage_times: list[list[Any]],
    paths: Sequence[Path],
) -> None:
    for number, path in enumerate(paths):
        length = pulp.lpSum(
            count * time
            for counts, times in zip(path, stage_times, strict=True)
            for count, time in zip(counts, times, strict=True)
            if count
        )
        problem += makespan >= length, f"path_{number}"


def _add_chain(
    pulp: Any, problem: Any, use: dict[tuple[int, int, int], Any], size: tuple[int, int]
) -> None:
    """One column a stage, each beginning in the gap where the one before ends."""
    ending: dict[tuple[int, int], list[Any]] = {}
    beginning: dict[tuple[int, int], list[Any]] = {}
    for (s, i, j), variable in use.items():
        beginning.setdefault((s, i), []).append(variable)
        ending.setdefault((s + 1, j + 1), []).append(variable)
    problem += pulp.lpSum(beginning[0, 0]) == 1, "begins_at_layer_0"
    for s, gap in sorted({*beginning, *ending} - {(0, 0), size}):
        arrive = pulp.lpSum(ending.get((s, gap), []))
        leave = pulp.lpSum(beginning.get((s, gap), []))
        problem += arrive == leave, f"stage_{s}_begins_at_layer_{gap}"


def _add_stage_times(
    pulp: Any,
    problem: Any,
    use: dict[tuple[int, int, int], Any],
    columns: Columns,
    num_stages: int,
    scale_s: float,
    again: Sequence[Any],
) -> list[list[Any]]:
    """Variables for the times of every stage, each a sum over its columns."""
    variables = list(use.values())
    of_stage = _places(columns, num_stages)
    parts = zip(
        (*PARTS, "optimizer_s"), (*columns.times_s, columns.optimizer_s), strict=True
    )
    times = []
    for name, values_s in parts:
        scaled = (values_s / scale_s).tolist()
        row = []
        for s, indices in enumerate(of_stage):
            time = problem.add_variable(f"{name}_{s}", 0, None, pulp.LpContinuous)
            total = pulp.LpAffineExpression(
                [(variables[i], scaled[i]) for i in indices if scaled[i]]
            )
            if again and name in (_AFTER_RECOMPUTE if s else _IN_FIRST_STAGE):
                total += again[s]
            problem += time == total, f"{name}_of_stage_{s}"
            row.append(time)
        times.append(row)
    return times


def _places(columns: Columns, num_stages: int) -> list[list[int]]:
    """Where the columns of every stage lie."""
    return [np.flatnonzero(columns.stage == s).tolist() for s in range(num_stages)]


def _add_optimizer(
    pulp: Any, problem: Any, optimizer: Any, of_stage: list[Any], home: Sequence[int]
) -> None:
    """As slow as the slowest device; stages of one device take their steps in turn."""
    of_device: dict[int, list[Any]] = {}
    for stage, device in enumerate(home):
        of_device.setdefault(device, []).append(of_stage[stage])
    for device, own in of_device.items():
        problem += optimizer >= pulp.lpSum(own), f"optimizer_covers_device_{device}"


def _add_memory(
    pulp: Any,
    problem: Any,
    use: dict[tuple[int, int, int], Any],
    columns: Columns,
    together: Together,
    scale_s: float,
) -> list[Any]:
    """Limits of devices with several stages; the time that recompute adds to each."""
    variables = list(use.values())
    num_stages = len(together.home)
    stages = range(num_stages)
    of_stage = _places(columns, num_stages)
    scale = max(limit.budget_bytes for limit in together.limits) or 1

    def total(values: Any, stage: int) -> Any:
        scaled = (values / scale).tolist()
        return pulp.LpAffineExpression(
            [(variables[i], scaled[i]) for i in of_stage[stage] if scaled[i]]
        )

    static = [total(columns.static_bytes, s) for s in stages]
    # As in `Counts`, but for what is kept.
    sizes = [
        [
            total(values, s)
            for values in (
                columns.held_bytes,
                columns.output_bytes,
                columns.input_bytes,
                columns.gradients_bytes,
            )
        ]
        for s in stages
    ]
    rise = [total(columns.rise_bytes, s) for s in stages]
    again, kept = [], []
    for s in stages:
        again.append(problem.add_variable(f"again_{s}", 0, None, pulp.LpContinuous))
        kept.append(problem.add_variable(f"kept_{s}", 0, None, pulp.LpContinuous))
        rate = together.saved_per_s * scale_s * together.speeds[s] / scale
        least = total(columns.least_kept_bytes, s)
        problem += kept[s] >= least, f"kept_at_least_{s}"
        if rate < _STEEPEST:
            without = total(columns.kept_bytes, s)
            problem += kept[s] + rate * again[s] >= without, f"recompute_{s}"
    for number, limit in enumerate(together.limits):
        needed = [
            static[s] + _there(pulp, counts, (kept[s], *sizes[s]))
            for s, counts in limit.counts.items()
        ]
        if limit.running is not None:
            needed.append(rise[limit.running])
        problem += pulp.lpSum(needed) <= limit.budget_bytes / scale, f"memory_{number}"
    return again


def _there(pulp: Any, counts: Counts, sizes: Sequence[Any]) -> Any:
    """What a stage takes at one moment."""
    pairs = zip(counts, sizes, strict=True)
    return pulp.lpSum([count * size for count, size in pairs if count])


def _bound(problem: Any, proven: bool, gap: float) -> float:
    """A lower bound of the objective; 0 if the solver does not tell."""
    if proven:
        slack = gap if gap > TOLERANCE else 0.0
        return float(problem.objective.value()) * (1 - slack)
    model = getattr(problem, "solverModel", None)
    if model is None or not hasattr(model, "getInfo"):
        return 0.0
    bound = float(model.getInfo().mip_dual_bound)
    return bound if 0.0 < bound < float("inf") else 0.0


def _solver(pulp: Any, name: str, time_limit_s: float, gap: float) -> Any:
    options = {"msg": False, "timeLimit": time_limit_s, "gapRel": gap}
    highs = pulp.HiGHS(threads=1, **options)
    if name == "highs" or (name == "auto" and highs.available()):
        return highs
    return pulp.COIN_CMD(path=pulp.PULP_CBC_CMD.pulp_cbc_path, threads=1, **options)
