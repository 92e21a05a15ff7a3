"""`planner profile --links`: measure what joins the cards, and keep it.

With MODEL the links go into its new profile; without, into the profile of `-o` or
the newest one for the same kind of device.
"""

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from planner.cli.newest import PROFILES, newest_first
from planner.cli.parameters import say_aside, speaker
from planner.errors import ArtifactError

if TYPE_CHECKING:
    from planner.model_profile import ProfiledCluster

F = TypeVar("F", bound=Callable[..., Any])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LinkWishes:
    """What the options of this module say.

    Attributes:
        measure: Whether to measure links at all.
        num_processes: How many devices; None for all cards, or two processes.
        timeout_s: For one pair [s].
    """

    measure: bool
    num_processes: int | None
    timeout_s: float


def link_options(command: F) -> F:
    """Give a command the options `--links`, `--num-processes`, `--link-timeout`.

    Args:
        command: Takes them as `links`, `num_processes` and `link_timeout_s`.

    Returns:
        The command.
    """
    options = (
        click.option(
            "--links",
            is_flag=True,
            help="Also measure what joins the cards; alone without MODEL.",
        ),
        click.option(
            "--num-processes",
            type=click.IntRange(min=1),
            help="Devices whose links are measured, and processes that compute while "
            "layers are timed on a CPU.  [default: all cards; on a CPU 2 for links, 1 "
            "for layers]",
        ),
        click.option(
            "--link-timeout",
            "link_timeout_s",
            type=click.FloatRange(min=0, min_open=True),
            default=30.0,
            show_default=True,
            help="For one pair of devices, in seconds.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def measure_for(device: str, wishes: LinkWishes) -> "ProfiledCluster | None":
    """Measure the links that belong into the profile of a model.

    Args:
        device: Of the profile: `auto`, `cuda`, `cpu` or a card of the catalogue.
        wishes: Of the user.

    Returns:
        What was measured; None if the user did not ask for it.

    Raises:
        LinkError: A pair of devices hangs, fails, or delivers something else.
        WishError: There are not enough such devices here.
    """
    if not wishes.measure:
        return None
    return _measure("cpu" if device == "cpu" else "cuda", wishes)


def measure_alone(
    device: str, wishes: LinkWishes, output: Path | None, as_json: bool
) -> None:
    """Measure links without a model, show them, and put them into a profile.

    Args:
        device: `auto`, `cuda` or `cpu`.
        wishes: Of the user.
        output: The profile to put them into; None for the newest that suits.
        as_json: Whether stdout is kept for the links as JSON.

    Raises:
        ArtifactError: `output` is no profile.
        LinkError: A pair of devices hangs, fails, or delivers something else.
        UsageError: The user did not ask for links either.
        WishError: There are not enough such devices here.
    """
    from planner import artifact  # msgspec
    from planner.links_text import describe_cluster
    from planner.measure import usual_device  # torch
    from planner.model_profile import load_profile

    if not wishes.measure:
        msg = "Missing argument 'MODEL', or --links for the links alone."
        raise click.UsageError(msg)
    kind = usual_device() if device == "auto" else "cpu" if device == "cpu" else "cuda"
    path = output or newest_of(kind)
    costs = load_profile(path) if path else None
    cluster = _measure(kind, wishes)
    if as_json:
        click.echo(artifact.to_json(cluster), nl=False)
    say = speaker(as_json)
    say(describe_cluster(cluster))
    if path is None or costs is None:
        say(
            f"not kept: {PROFILES}/ has no profile for {kind}; name one with -o, or "
            "make one with planner profile MODEL --links"
        )
        return
    artifact.save(dataclasses.replace(costs, cluster=cluster), path)
    say(f"wrote the links into {path}")
    if costs.device.type != kind:
        say_aside(f"warning: that profile is for {costs.device.type}, not for {kind}")


def newest_of(kind: Literal["cuda", "cpu"]) -> Path | None:
    """The profile for one kind of device that was made last.

    Args:
        kind: Of device.

    Returns:
        A path in `profiles/`, relative to the current folder; None if there is none.
    """
    from planner.model_profile import load_profile

    for path in newest_first():
        with contextlib.suppress(ArtifactError):
            if load_profile(path).device.type == kind:
                return path
    return None


def _measure(kind: Literal["cuda", "cpu"], wishes: LinkWishes) -> "ProfiledCluster":
    from planner.measure import measure_links  # torch

    return measure_links(
        kind,
        num_processes=wishes.num_processes,
        timeout_s=wishes.timeout_s,
        progress=say_aside,
    )
