"""`planner run`: train as a plan says."""

from pathlib import Path
from typing import Literal

import click

from planner.cli.parameters import PATH, as_json, say_aside, speaker


@click.command()
@click.argument("plan", type=PATH)
@click.option(
    "--data",
    default="builtin",
    show_default=True,
    help="A text file, a folder of them, a .jsonl file or builtin.",
)
@click.option("--steps", type=int, help="Optimizer steps in all.  [default: 10]")
@click.option("--epochs", type=int, help="Passes over the data, instead of --steps.")
@click.option("--lr", type=float, default=2e-5, show_default=True)
@click.option(
    "--lr-schedule",
    type=click.Choice(["constant", "linear", "cosine"]),
    default="constant",
    show_default=True,
)
@click.option("--warmup-steps", type=int, default=0, show_default=True)
@click.option("--weight-decay", type=float, default=0.0, show_default=True)
@click.option(
    "--max-grad-norm", type=float, default=1.0, show_default=True, help="0 is off."
)
@click.option("--shuffle/--no-shuffle", default=True, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--output-dir", type=PATH, help="Must be new.  [default: runs/ and the plan's name]"
)
@click.option(
    "--init",
    type=click.Choice(["pretrained", "random"]),
    help="Weights at the start.  [default: pretrained where there are any]",
)
@click.option(
    "--check/--no-check",
    default=True,
    show_default=True,
    help="Try the cut on a small copy first, unless the type is known to be exact.",
)
@as_json
def run(
    plan: Path,
    data: str,
    steps: int | None,
    epochs: int | None,
    lr: float,
    lr_schedule: Literal["constant", "linear", "cosine"],
    warmup_steps: int,
    weight_decay: float,
    max_grad_norm: float,
    shuffle: bool,
    seed: int,
    output_dir: Path | None,
    init: Literal["pretrained", "random"] | None,
    check: bool,
    as_json: bool,
) -> None:
    """Train as PLAN says, one process per device."""
    from planner import artifact
    from planner.plan import load_plan
    from planner.plan_profile import check_profile
    from planner.run_record import check_run_dir, load_metrics
    from planner.run_text import describe_run
    from planner.runtime.options import RunOptions

    options = RunOptions(
        output_dir=output_dir or Path("runs") / plan.stem,
        data=data,
        steps=steps,
        epochs=epochs,
        lr=lr,
        lr_schedule=lr_schedule,
        warmup_steps=warmup_steps,
        weight_decay=weight_decay,
        max_grad_norm=max_grad_norm,
        shuffle=shuffle,
        seed=seed,
        init=init,
        check=check,
    )
    what = load_plan(plan)
    if options.leads and (warning := check_profile(what)):
        say_aside(f"warning: {warning}")
    if not options.joins:
        check_run_dir(options.output_dir)

    from planner.runtime import run_plan  # torch; only when all else is right

    record = run_plan(what, options, say=say_aside)
    if not options.leads:
        return
    if as_json:
        click.echo(artifact.to_json(record), nl=False)
    say = speaker(as_json)
    say(describe_run(record, load_metrics(options.output_dir)))
    say(f"wrote {options.output_dir}")
