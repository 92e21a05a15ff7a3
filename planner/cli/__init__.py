"""The command line: parse, call, print.

Heavy libraries are imported inside the commands that need them, so that
`planner --help` answers at once.
"""

import click

from planner import __version__
from planner.cli.check_command import check
from planner.cli.compare_command import compare
from planner.cli.export_command import export
from planner.cli.failure import PlannerGroup
from planner.cli.profile_command import profile
from planner.cli.run_command import run
from planner.cli.show_commands import cards, demo, report
from planner.cli.solve_command import solve


@click.group(cls=PlannerGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="planner")
def main() -> None:
    """Train a Hugging Face model that does not fit on one card.

    profile says what each layer costs, solve cuts the model into one stage a
    card, compare says what other ways would take, run trains it, report draws it;
    check tries whether a model can be cut. Try demo first.
    """


for command in (
    profile,
    solve,
    compare,
    run,
    export,
    report,
    check,
    cards,
    demo,
):
    main.add_command(command)
