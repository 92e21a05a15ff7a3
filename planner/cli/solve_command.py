"""`planner solve`: which layers on which card, in which order."""

from pathlib import Path
from typing import Literal

import click

from planner.cli.calibrate_option import calibrated_run, check_cards_options
from planner.cli.newest import PROFILES, newest_first
from planner.cli.parameters import (
    PATH,
    as_json,
    auto_or_integer,
    say_aside,
    speaker,
)
from planner.errors import ArtifactError, InfeasibleError
from planner.schedule.named import SCHEDULES


@click.command()
@click.argument("profile", required=False, type=PATH)
@click.option("--gpus", help="4, or rtx3090:2,rtx4090:2")
@click.option("--memory", help="Of each card: 24GiB, or 24GiB,24GiB,10GiB")
@click.option("--reserve", help="Kept free on each card: 1.5GiB, or 0")
@click.option(
    "--link", help="pcie4x16, 12GB/s,10us, or one for each pair: pcie4x8,pcie3x4"
)
@click.option("--speed", help="Relative speed of each card: 1,1,2,2")
@click.option("--global-batch-size", type=int, help="Sequences of one step.")
@click.option(
    "--microbatch-size",
    metavar="auto|N",
    default="auto",
    show_default=True,
    callback=auto_or_integer,
)
@click.option(
    "--schedule",
    type=click.Choice(["auto", *SCHEDULES, "planned"]),
    default="auto",
    show_default=True,
)
@click.option(
    "--recompute",
    type=click.Choice(["auto", "none", "full"]),
    default="auto",
    show_default=True,
)
@click.option(
    "--optimizer",
    type=click.Choice(["auto", "adamw", "sgd"]),
    default="auto",
    show_default=True,
)
@click.option(
    "--layers-per-stage",
    help="Your own cut: 4,3,3,3 or 0-3,4-6,7-9,10-12, embedding and head included.",
)
@click.option(
    "--time-limit",
    "time_limit_s",
    type=float,
    default=30.0,
    show_default=True,
    help="Of the search, in seconds.",
)
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
    gpus: str | None,
    memory: str | None,
    reserve: str | None,
    link: str | None,
    speed: str | None,
    global_batch_size: int | None,
    microbatch_size: int | None,
    schedule: str,
    recompute: Literal["auto", "none", "full"],
    optimizer: str,
    layers_per_stage: str | None,
    time_limit_s: float,
    run_dir: Path | None,
    output: Path,
    as_json: bool,
) -> None:
    """Find the best plan for the model of PROFILE on your cards.

    Without PROFILE, the newest in profiles/ is taken.
    """
    check_cards_options(
        gpus, run_dir, memory=memory, reserve=reserve, link=link, speed=speed
    )

    from planner import artifact
    from planner.cluster import parse_cluster
    from planner.model_profile import load_profile, sha256_of
    from planner.plan import ProfileRef
    from planner.plan_text import describe_plan
    from planner.solve import Wishes, best_plan, parse_layers_per_stage  # pulp
    from planner.stage_links import links_note, load_note

    say = speaker(as_json)
    run = None if run_dir is None else calibrated_run(run_dir, profile, output)
    if run is not None:
        costs, reference = run.calibration.profile, run.reference()
        global_batch_size, optimizer = run.same_work(global_batch_size, optimizer)
        say(run.text())
    else:
        path = profile or newest_profile()
        costs = load_profile(path)
        reference = ProfileRef(path=str(path), sha256=sha256_of(path))
    if run is not None and gpus is None:
        cluster = run.cards()
    else:
        cluster = parse_cluster(
            gpus or "", costs, memory=memory, reserve=reserve, link=link, speed=speed
        )
    if note := links_note(cluster, costs):
        say_aside(note)
    if note := load_note(cluster, costs):
        say_aside(note)
    wishes = Wishes(
        global_batch_size=global_batch_size,
        microbatch_size=microbatch_size,
        schedule=schedule,
        recompute=recompute,
        optimizer=optimizer,
        layers_per_stage=(
            None
            if layers_per_stage is None
            else parse_layers_per_stage(layers_per_stage)
        ),
        time_limit_s=time_limit_s,
    )
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


def newest_profile() -> Path:
    """The profile that was made last, and say which.

    Returns:
        A path in `profiles/`, relative to the current folder.

    Raises:
        ArtifactError: There is none.
    """
    found = next(iter(newest_first()), None)
    if found is None:
        msg = f"there is no profile in {PROFILES}/; make one with planner profile MODEL"
        raise ArtifactError(msg)
    say_aside(f"using {found}, the newest profile")
    return found


def failure(error: InfeasibleError) -> dict[str, object]:
    """What `--json` answers when nothing fits.

    Args:
        error: Why.

    Returns:
        Plain data.
    """
    return {
        "message": str(error),
        "shortfall_bytes": error.shortfall_bytes,
        "stage": error.stage,
        "would_fit": error.would_fit,
    }
