"""`planner run`: train as a plan says."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from planner.cli.parameters import (
    PATH,
    as_json,
    say_aside,
    speaker,
    trust_remote_code,
)

if TYPE_CHECKING:
    from planner.plan import Plan


@click.command()
@click.argument("plan", required=False, type=PATH)
@click.option(
    "--data",
    default="builtin",
    show_default=True,
    help="A text file, a folder of them, a .jsonl file or builtin.",
)
@click.option(
    "--long-samples",
    type=click.Choice(["refuse", "truncate", "split"]),
    default="refuse",
    show_default=True,
    help="What becomes of a sample longer than the plan's sequences.",
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
@click.option(
    "--eval-data", help="What to evaluate the model on, as --data.  [default: nothing]"
)
@click.option(
    "--eval-every", type=int, help="Steps between evaluations.  [default: at the end]"
)
@click.option(
    "--save-every", type=int, help="Steps between checkpoints.  [default: at the end]"
)
@click.option(
    "--keep", type=int, default=2, show_default=True, help="Newest checkpoints to keep."
)
@click.option(
    "--resume",
    metavar="[RUN_DIR|CHECKPOINT]",
    is_flag=False,
    flag_value="",
    help="Go on from the newest checkpoint of a run, or from this one; without a "
    "value, of the output directory. What is not given is as it was, PLAN too.",
)
@trust_remote_code
@as_json
@click.pass_context
def run(
    context: click.Context,
    /,
    plan: Path | None,
    resume: str | None,
    output_dir: Path | None,
    trust_remote_code: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Train as PLAN says, one process per device."""
    from planner import artifact
    from planner.plan_profile import check_profile
    from planner.run_record import check_run_dir, load_metrics
    from planner.run_text import describe_run
    from planner.runtime.options import RunOptions

    start = _start(context, plan, resume, output_dir)
    options = RunOptions(
        output_dir=start.output_dir,
        resume=start.checkpoint,
        **{**given, **start.as_before},
    )
    if options.leads and (warning := check_profile(start.plan)):
        say_aside(f"warning: {warning}")
    if not options.joins:
        check_run_dir(options.output_dir, resumed=start.checkpoint is not None)

    from planner.runtime import run_plan  # torch; only when all else is right

    trusted = start.plan.trusting(trust_remote_code)
    record = run_plan(trusted, options, say=say_aside)
    if not options.leads:
        return
    if as_json:
        click.echo(artifact.to_json(record), nl=False)
    say = speaker(as_json)
    say(describe_run(record, load_metrics(options.output_dir)))
    say(f"wrote {options.output_dir}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """What is trained, where it is written, and what it goes on from."""

    plan: "Plan"
    output_dir: Path
    checkpoint: Path | None
    as_before: dict[str, Any]


def _start(
    context: click.Context,
    plan: Path | None,
    resume: str | None,
    output_dir: Path | None,
) -> _Start:
    from planner.plan import load_plan

    usual_dir = Path("runs") / plan.stem if plan is not None else None
    if resume is None:
        if plan is None or usual_dir is None:
            msg = "Missing argument 'PLAN'; only with --resume RUN_DIR it is known."
            raise click.UsageError(msg)
        return _Start(
            plan=load_plan(plan),
            output_dir=output_dir or usual_dir,
            checkpoint=None,
            as_before={},
        )
    from planner.runtime.checkpoint_folder import (
        find_checkpoint,
        load_checkpoint_plan,
        run_dir_of,
    )
    from planner.runtime.resuming import options_of

    named = Path(resume) if resume else output_dir or usual_dir
    if named is None:
        msg = "--resume needs a run directory or a checkpoint, or a PLAN."
        raise click.UsageError(msg)
    checkpoint = find_checkpoint(named)
    home = named if (named / "run.json").is_file() else run_dir_of(checkpoint)
    if output_dir is None and home is None:
        msg = f"{checkpoint} lies in no run directory; give an --output-dir."
        raise click.UsageError(msg)
    return _Start(
        plan=load_checkpoint_plan(checkpoint) if plan is None else load_plan(plan),
        output_dir=output_dir or home or named,
        checkpoint=checkpoint,
        as_before=_not_said(context, options_of(checkpoint)),
    )


def _not_said(context: click.Context, before: dict[str, Any]) -> dict[str, Any]:
    """The options of the run before, without those that the user gives now."""
    said = {
        name
        for name in context.params
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    if said & {"steps", "epochs"}:
        said |= {"steps", "epochs"}
    known = {name: value for name, value in before.items() if name in context.params}
    return {name: value for name, value in known.items() if name not in said}
