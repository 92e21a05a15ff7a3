"""`planner profile`: what every layer of a model costs."""

import dataclasses
from pathlib import Path
from typing import Literal

import click

from planner.cli.links_option import (
    LinkWishes,
    link_options,
    measure_alone,
    measure_for,
)
from planner.cli.parameters import (
    PATH,
    as_json,
    attention,
    file_stem,
    integers,
    revision,
    speaker,
    trust_remote_code,
)
from planner.cli.progress import shown_progress


@click.command()
@click.argument("model", required=False)
@click.option(
    "--device",
    default="auto",
    show_default=True,
    metavar="auto|cuda|cpu|CARD",
    help="Where to measure; a card of `planner cards` is computed without one.",
)
@click.option(
    "--dtype",
    type=click.Choice(["bfloat16", "float32"]),
    help="Of weights and activations.  [default: bfloat16; on the CPU float32]",
)
@click.option(
    "--seq-len",
    type=click.IntRange(min=1),
    help="Tokens of a sequence.  [default: 2048; on the CPU 256]",
)
@click.option(
    "--microbatch-size",
    "microbatch_sizes",
    callback=integers,
    metavar="N[,N...]",
    default="1",
    show_default=True,
    help="Sequences of a microbatch; several let solve choose.",
)
@link_options
@attention
@revision
@trust_remote_code
@click.option(
    "-o",
    "--output",
    type=PATH,
    help="Where to write.  [default: profiles/MODEL-DEVICE.json; without MODEL the "
    "newest in profiles/]",
)
@as_json
def profile(
    model: str | None,
    device: str,
    dtype: Literal["bfloat16", "float32"] | None,
    seq_len: int | None,
    microbatch_sizes: tuple[int, ...],
    links: bool,
    num_processes: int | None,
    link_timeout_s: float,
    attention: str,
    revision: str | None,
    trust_remote_code: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """Measure or compute what every layer of MODEL costs.

    MODEL is a hub id, a folder in Hugging Face format, or
    package.module:factory. With --links what joins the cards is measured, too.
    On a CPU, --num-processes of the plan to come makes the times like those of a run,
    whose processes slow each other.
    """
    wishes = LinkWishes(
        measure=links, num_processes=num_processes, timeout_s=link_timeout_s
    )
    if model is None:
        measure_alone(device, wishes, output, as_json)
        return

    from planner import artifact  # msgspec

    # Not only once all is measured.
    artifact.check_writable(output or default_path(model, device))
    from planner.links_text import describe_cluster
    from planner.measure import profile_model  # torch
    from planner.profile_text import describe_profile

    cluster = measure_for(device, wishes)
    on_cpu = device == "cpu"
    with shown_progress() as progress:
        found = profile_model(
            model,
            device=device,
            dtype=dtype or ("float32" if on_cpu else "bfloat16"),
            seq_len=seq_len or (256 if on_cpu else 2048),
            microbatch_sizes=microbatch_sizes,
            attention=attention,
            revision=revision,
            trust_remote_code=trust_remote_code,
            progress=progress,
            # On cards, it is the links that so many are measured for.
            num_processes=(num_processes or 1) if on_cpu or not links else 1,
        )
    found = dataclasses.replace(found, cluster=cluster)
    path = output or default_path(model, found.device.name)
    artifact.save(found, path)
    if as_json:
        click.echo(artifact.to_json(found), nl=False)
    say = speaker(as_json)
    say(describe_profile(found))
    if cluster:
        say(describe_cluster(cluster))
    say(f"wrote {path}")


def default_path(model: str, device_name: str) -> Path:
    """Where a profile goes when the user does not say.

    Args:
        model: As the user gave it; a folder may be `.`.
        device_name: Of the profile.

    Returns:
        A path in `profiles/`, relative to the current folder.
    """
    name = Path(model).resolve().name if Path(model).is_dir() else model
    stem = f"{file_stem(name)}-{file_stem(device_name)}".lower()
    return Path("profiles") / f"{stem}.json"
