"""`planner report`, `planner cards` and `planner demo`."""

from pathlib import Path

import click

from planner.cli.parameters import PATH, as_json


@click.command()
@click.argument("source", type=PATH, metavar="PLAN|RUN_DIR")
@click.option(
    "-o",
    "--output-dir",
    type=PATH,
    help="Where to write.  [default: reports/ and the name of the source]",
)
@click.option(
    "--tokens",
    default="1B",
    show_default=True,
    help="How many there are to train on: 300M, 1B.",
)
def report(source: Path, output_dir: Path | None, tokens: str) -> None:
    """Draw a plan or a run: HTML and pictures."""
    from planner.report import write_report  # matplotlib
    from planner.units import parse_count

    out_dir = output_dir or Path("reports") / source.resolve().stem
    page = write_report(source, out_dir, num_tokens=parse_count(tokens))
    click.echo(f"wrote {page}")


@click.command()
@as_json
def cards(as_json: bool) -> None:
    """List the cards and links that have a name.

    Cards of your own, in the same form as planner's, are read from
    ~/.config/planner/cards.toml, from planner-cards.toml in the working folder and
    from the file that PLANNER_CARDS names; a later one replaces a card of the same
    name. --json gives the source of every figure.

    \b
        [rtx4080super]
        memory_mib = 15936        # torch.cuda.get_device_properties(0)
        bf16_tflops = 104.4       # dense, fp32 accumulation; 0 if it has none
        fp32_tflops = 52.2
        bandwidth_gb_s = 736
        pcie = "4x16"             # and more: docs/cards.md
    """  # noqa: D301 (click wants the very character before an example)
    from planner import artifact
    from planner.cards_text import catalogue, describe_cards

    if as_json:
        click.echo(artifact.to_json(catalogue()), nl=False)
    else:
        click.echo(describe_cards())


@click.command()
@click.option("-o", "--output-dir", type=PATH, default="demo", show_default=True)
def demo(output_dir: Path) -> None:
    """Do it all on a small model: offline, on the CPU, in about a minute."""
    from planner.demo import run_demo  # torch

    run_demo(output_dir, click.echo)
