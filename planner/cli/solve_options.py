"""What `planner solve` and `planner compare` are asked: cards, and what is fixed."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click
from click.core import ParameterSource

from planner.cli.newest import PROFILES, newest_first
from planner.cli.parameters import auto_or_integer, say_aside
from planner.errors import ArtifactError, InfeasibleError
from planner.optimizers import OPTIMIZERS
from planner.schedule.named import SCHEDULES

if TYPE_CHECKING:
    from planner.cards import Cluster
    from planner.model_profile import ModelProfile
    from planner.solve import Wishes

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--gpus", help="4, or rtx3090:2,rtx4090:2"),
    click.option("--memory", help="Of each card: 24GiB, or 24GiB,24GiB,10GiB"),
    click.option("--reserve", help="Kept free on each card: 1.5GiB, or 0"),
    click.option(
        "--link", help="pcie4x16, 12GB/s,10us, or one for each pair: pcie4x8,pcie3x4"
    ),
    click.option("--speed", help="Relative speed of each card: 1,1,2,2"),
    click.option("--global-batch-size", type=int, help="Sequences of one step."),
    click.option(
        "--microbatch-size",
        metavar="auto|N",
        default="auto",
        show_default=True,
        callback=auto_or_integer,
    ),
    click.option(
        "--schedule",
        type=click.Choice(["auto", *SCHEDULES, "planned"]),
        default="auto",
        show_default=True,
    ),
    click.option(
        "--recompute",
        type=click.Choice(["auto", "none", "full"]),
        default="auto",
        show_default=True,
    ),
    click.option(
        "--optimizer",
        type=click.Choice(["auto", *OPTIMIZERS]),
        default="auto",
        show_default=True,
    ),
    click.option(
        "--layers-per-stage",
        help="Your own cut: 4,3,3,3 or 0-3,4-6,7-9,10-12, embedding and head included.",
    ),
    click.option(
        "--copies",
        "num_copies",
        metavar="auto|N",
        default="auto",
        show_default=True,
        callback=auto_or_integer,
        help="Of the pipeline, each on its share of the cards and of the batch.",
    ),
    click.option(
        "--keep-cards",
        "keeps_cards",
        is_flag=True,
        help="Use all cards in the order given, even if fewer or others first are "
        "quicker.",
    ),
    click.option(
        "--time-limit",
        "time_limit_s",
        type=float,
        default=30.0,
        show_default=True,
        help="Of the search, in seconds.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveOptions:
    """What the options of this module say.

    Attributes:
        gpus: Cards, as the user wrote them.
        memory: Of each.
        reserve: Kept free on each.
        link: Between them.
        speed: Of each.
        global_batch_size: Sequences of one step; None if not said.
        microbatch_size: Sequences of one microbatch; None for `auto`.
        schedule: A name, or `auto`.
        recompute: `auto`, `none` or `full`.
        optimizer: A name, or `auto`.
        layers_per_stage: A cut, as the user wrote it.
        num_copies: Of the pipeline; None for `auto`.
        keeps_cards: All cards in the order given.
        time_limit_s: Of the search [s].
    """

    gpus: str | None
    memory: str | None
    reserve: str | None
    link: str | None
    speed: str | None
    global_batch_size: int | None
    microbatch_size: int | None
    schedule: str
    recompute: Literal["auto", "none", "full"]
    optimizer: str
    layers_per_stage: str | None
    num_copies: int | None
    keeps_cards: bool
    time_limit_s: float

    def of_cards(self) -> dict[str, str | None]:
        """What is said of the cards besides which they are.

        Returns:
            Values by option.
        """
        return {
            "memory": self.memory,
            "reserve": self.reserve,
            "link": self.link,
            "speed": self.speed,
        }

    def cluster(self, costs: "ModelProfile") -> "Cluster":
        """The cards.

        Args:
            costs: Profile that a plain count refers to.

        Returns:
            One device a card.

        Raises:
            ArtifactError: A file of the user's cards is wrong.
            WishError: A value cannot be read, or does not match the cards.
        """
        from planner.cluster import parse_cluster

        return parse_cluster(self.gpus or "", costs, **self.of_cards())

    def wishes(self) -> "Wishes":
        """What is fixed for the search.

        Returns:
            The wishes.

        Raises:
            WishError: A value cannot be read, or no plan can have it.
        """
        from planner.solve import Wishes, parse_layers_per_stage

        text = self.layers_per_stage
        return Wishes(
            global_batch_size=self.global_batch_size,
            microbatch_size=self.microbatch_size,
            schedule=self.schedule,
            recompute=self.recompute,
            optimizer=self.optimizer,
            layers_per_stage=None if text is None else parse_layers_per_stage(text),
            num_copies=self.num_copies,
            keeps_cards=self.keeps_cards,
            time_limit_s=self.time_limit_s,
        )


def solve_options(command: F) -> F:
    """Give a command the options of `planner solve`.

    Args:
        command: Takes them together as `options`, a `SolveOptions`.

    Returns:
        The command.
    """

    @functools.wraps(command)
    def call(**values: Any) -> Any:
        own = {field.name: values.pop(field.name) for field in fields(SolveOptions)}
        return command(options=SolveOptions(**own), **values)

    for option in reversed(_OPTIONS):
        call = option(call)
    return call  # type: ignore[return-value]  # the same, called with other words


def refuse_options(because: str) -> None:
    """Refuse every option of this module that the user gave to the current command.

    Args:
        because: What is said after their names.

    Raises:
        click.UsageError: There is one.
    """
    context = click.get_current_context()
    names = {field.name for field in fields(SolveOptions)}
    given = [
        param.opts[0]
        for param in context.command.params
        if param.name in names
        and context.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
    ]
    if given:
        msg = f"{', '.join(given)} {because}"
        raise click.UsageError(msg)


def say_notes(cluster: "Cluster", costs: "ModelProfile") -> None:
    """Say what a user should know about links and load.

    Args:
        cluster: Of the user.
        costs: The profile.
    """
    from planner.stage_links import links_note, load_note

    for note in (links_note(cluster, costs), load_note(cluster, costs)):
        if note:
            say_aside(note)


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
