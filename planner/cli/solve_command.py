"""`planner solve`: which layers on which card, in which order."""

import dataclasses
from pathlib import Path

import click

from planner.cli.calibrate_option import calibrated_run, check_cards_options
from planner.cli.parameters import PATH, as_json, speaker
from planner.cli.solve_options import (
    SolveOptions,
    failure,
    newest_profile,
    say_notes,
    solve_options,
)
from planner.errors import InfeasibleError


@click.command()
@click.argument("profile", required=False, type=PATH)
@solve_options
@click.option(
    "--calibrate",
    "run_dir",
    metavar="RUN_DIR",
    type=PATH,
    help="Scale the profile by what a run of its plan measured; what is not given is "
    "as in that run: profile, cards, batch, optimizer.",
)
@click.option("-o", "--output", type=PATH, default="plan.json", show_default=True)
@as_json
def solve(
    profile: Path | None,
    options: SolveOptions,
    run_dir: Path | None,
    output: Path,
    as_json: bool,
) -> None:
    """Find the best plan for the model of PROFILE on your cards.

    Without PROFILE, the newest in profiles/ is taken.
    """
    check_cards_options(options.gpus, run_dir, **options.of_cards())

    from planner import artifact
    from planner.model_profile import load_profile, sha256_of
    from planner.plan import ProfileRef
    from planner.plan_text import describe_plan
    from planner.solve import best_plan  # pulp

    say = speaker(as_json)
    run = None if run_dir is None else calibrated_run(run_dir, profile, output)
    if run is not None:
        costs, reference = run.calibration.profile, run.reference()
        batch, optimizer = run.same_work(options.global_batch_size, options.optimizer)
        options = dataclasses.replace(
            options, global_batch_size=batch, optimizer=optimizer
        )
        say(run.text())
    else:
        path = profile or newest_profile()
        costs = load_profile(path)
        reference = ProfileRef(path=str(path), sha256=sha256_of(path))
    if run is not None and options.gpus is None:
        cluster = run.cards()
    else:
        cluster = options.cluster(costs)
    say_notes(cluster, costs)
    wishes = options.wishes()
    try:
        plan = best_plan(costs, cluster, wishes, profile_ref=reference)
    except InfeasibleError as error:
        if as_json:
            click.echo(artifact.to_json(failure(error)), nl=False)
        raise
    change = run.change(plan, cluster) if run is not None else ""
    if run is not None:
        artifact.save(costs, run.path)
    artifact.save(plan, output)
    if as_json:
        click.echo(artifact.to_json(plan), nl=False)
    say(describe_plan(plan))
    if run is not None:
        say(f"{change}\nwrote {run.path}, the calibrated profile")
    say(f"wrote {output}")
