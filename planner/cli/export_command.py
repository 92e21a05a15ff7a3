"""`planner export`: a checkpoint as an ordinary Hugging Face folder."""

from pathlib import Path

import click

from planner.cli.parameters import PATH, trust_remote_code


@click.command()
@click.argument("checkpoint", type=PATH, metavar="CHECKPOINT|RUN_DIR")
@click.option(
    "-o", "--output", type=PATH, required=True, help="The folder; must be new."
)
@trust_remote_code
def export(checkpoint: Path, output: Path, trust_remote_code: bool) -> None:
    """Write the model of a checkpoint as from_pretrained loads it.

    Of a run directory, the newest checkpoint is taken.
    """
    from planner.runtime.export import export as write

    write(checkpoint, output, trust_remote_code=trust_remote_code)
    click.echo(f"wrote {output}")
