"""`planner compare`: the same work as other people do it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.calibrate_option import check_cards_options
from planner.cli.parameters import PATH, as_json, speaker
from planner.cli.solve_options import (
    SolveOptions,
    failure,
    newest_profile,
    refuse_options,
    say_notes,
    solve_options,
)
from planner.errors import InfeasibleError

if TYPE_CHECKING:
    from planner.plan import Plan


@click.command()
@click.argument("source", required=False, type=PATH, metavar="[PROFILE|PLAN]")
@solve_options
@as_json
def compare(source: Path | None, options: SolveOptions, as_json: bool) -> None:
    """Compare the best plan with what others would do.

    With PROFILE and your cards the plan is found first, as by planner solve; with
    PLAN it is there already. Without either, the newest profile in profiles/ is taken.
    The other ways: the splits of PyTorch by hand, torchtitan, DeepSpeed, torchgpipe and
    PipeDream, layers placed on cards without a pipeline, ZeRO-3 (FSDP), a copy of the
    model on every card, and one card alone.
    """
    from planner import artifact
    from planner.compare_text import describe_comparison

    if source is not None and is_plan(source):
        refuse_options("with a plan: name its profile to plan again.")
        from planner.plan import load_plan

        plan = load_plan(source)
    else:
        check_cards_options(options.gpus, None, **options.of_cards())
        plan = found_plan(source or newest_profile(), options, as_json=as_json)
    if as_json:
        click.echo(artifact.to_json(as_data(plan)), nl=False)
    speaker(as_json)(describe_comparison(plan))


def found_plan(path: Path, options: SolveOptions, *, as_json: bool) -> "Plan":
    """Solve; if nothing fits, tell the other ways before the error.

    Args:
        path: Of the profile.
        options: Of the user.
        as_json: Whether stdout is kept for the answer as JSON.

    Returns:
        The best plan.

    Raises:
        InfeasibleError: No plan fits.
        PlannerError: The profile cannot be read, or a wish cannot be met.
    """
    from planner import artifact
    from planner.compare_text import describe_others
    from planner.model_profile import load_profile, sha256_of
    from planner.plan import ProfileRef
    from planner.solve import best_plan, other_ways  # pulp

    costs = load_profile(path)
    cluster = options.cluster(costs)
    say_notes(cluster, costs)
    wishes = options.wishes()
    reference = ProfileRef(path=str(path), sha256=sha256_of(path))
    try:
        return best_plan(costs, cluster, wishes, profile_ref=reference)
    except InfeasibleError as error:
        others = other_ways(costs, cluster, wishes)
        if as_json:
            answer = {**failure(error), "plan": None, "baselines": others}
            click.echo(artifact.to_json(answer), nl=False)
        if others:
            speaker(as_json)(describe_others(others) + "\n")
        raise


def is_plan(path: Path) -> bool:
    """Whether a file is a plan rather than a profile.

    Args:
        path: Of a JSON file.

    Returns:
        Whether it has stages; also False if it cannot be read.
    """
    try:
        raw = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(raw, dict) and "stages" in raw


def as_data(plan: "Plan") -> dict[str, object]:
    """What `--json` answers.

    Args:
        plan: With its baselines.

    Returns:
        Plain data: the plan in short, names of what is quicker, and every other way.
    """
    schedule = plan.schedule
    return {
        "model": plan.model.id,
        "plan": {
            "schedule": schedule.name,
            "num_copies": plan.num_copies,
            "layers_per_stage": [len(stage.layers) for stage in plan.stages],
            "devices": list(plan.used_cards),
            "num_microbatches": schedule.num_microbatches,
            "microbatch_size": schedule.microbatch_size,
            "step_s": plan.predicted.step_s,
            "tokens_per_s": plan.predicted.tokens_per_s,
            "status": plan.solver.status,
        },
        "quicker": [baseline.name for baseline in plan.quicker_baselines],
        "baselines": plan.baselines,
    }
