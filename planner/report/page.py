"""One self-contained HTML page from a plan or a run, its figures beside it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from planner.artifact import write_atomically
from planner.errors import ArtifactError
from planner.plan import Plan
from planner.plan_text import describe_links
from planner.report.colors import RECOMPUTE_COLOR
from planner.report.drawing import Picture, RenderedPicture, render
from planner.report.pictures import (
    balance_pictures,
    timeline_picture,
    training_picture,
)
from planner.report.source import ReportSource, read_source
from planner.report.spans import Spans, measured_spans, predicted_spans
from planner.report.tables import baseline_rows, compared_numbers, compared_rows
from planner.report.text import balance_text, timeline_text
from planner.report.verdict import Fact, headline, verdict

_PAGE = "report.html"
# Files that only some reports have.
_OPTIONAL = ("timeline.png", "training.png", "predicted_against_measured.csv")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Both timelines of one step, as far as there are any.

    Attributes:
        predicted: One span an action; empty if the plan's order cannot run.
        measured: The same of a run; empty without one.
        missing: Why a timeline is absent, one sentence each.
    """

    predicted: Spans = ()
    measured: Spans = ()
    missing: tuple[str, ...] = ()


def write_report(source_path: Path, out_dir: Path, *, num_tokens: int) -> Path:
    """Write the page and the figures, each file whole or not at all.

    Args:
        source_path: A plan's JSON file or a run directory.
        out_dir: Folder of the report; made if absent.
        num_tokens: To say how long training on so many takes.

    Returns:
        Path of the HTML page, which is written last.

    Raises:
        ArtifactError: The source cannot be read, or the folder not be written.
    """
    source = read_source(source_path)
    files = report_files(source, num_tokens)
    try:
        for name, content in files.items():
            write_atomically(out_dir / name, content)
        for name in set(_OPTIONAL) - set(files):
            # Of an earlier report, about something else.
            (out_dir / name).unlink(missing_ok=True)
    except ArtifactError as error:
        msg = f"{error}; choose another folder for the report with -o"
        raise ArtifactError(msg) from error
    return out_dir / _PAGE


def report_files(source: ReportSource, num_tokens: int = 10**9) -> dict[str, bytes]:
    """The whole report, without writing it.

    Args:
        source: What the report is about.
        num_tokens: To say how long training on so many takes.

    Returns:
        File name to content; the page comes last.
    """
    step = step_of(source)
    pictures = {picture.name: render(picture) for picture in _pictures(source, step)}
    files = {f"{name}.png": picture.png for name, picture in pictures.items()}
    tables: dict[str, Any] = {"baselines": baseline_rows(source.plan)}
    if source.measured:
        numbers = compared_numbers(source.plan, source.measured, step.measured)
        tables["compared"] = compared_rows(numbers)
        csv = numbers.to_csv(index=False, lineterminator="\n")
        files["predicted_against_measured.csv"] = csv.encode()
    facts = verdict(source, step.measured, num_tokens)
    html = _html(source, step, facts, pictures, tables)
    return files | {_PAGE: html.encode()}


def step_of(source: ReportSource) -> Step:
    """Simulate the plan's step and read the measured one.

    Args:
        source: What the report is about.

    Returns:
        Both timelines, or why one is absent.
    """
    missing = []
    predicted: Spans = ()
    measured: Spans = ()
    try:
        predicted = predicted_spans(source.plan)
        if source.measured:
            measured = measured_spans(source.plan, source.measured)
    except ValueError as error:
        which = "measured timeline" if predicted else "timeline"
        reason = str(error).splitlines()[0]  # a bad schedule is shown below its first
        missing.append(f"No {which}: {reason}.")
    return Step(predicted=predicted, measured=measured, missing=tuple(missing))


def _pictures(source: ReportSource, step: Step) -> tuple[Picture, ...]:
    pictures = balance_pictures(source)
    if step.predicted:
        pictures += (timeline_picture(source, step.predicted, step.measured),)
    if source.metrics:
        pictures += (training_picture(source),)
    return pictures


def _html(
    source: ReportSource,
    step: Step,
    facts: Sequence[Fact],
    pictures: Mapping[str, RenderedPicture],
    tables: Mapping[str, Any],
) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("planner.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Only our own drawings are trusted as markup; their texts were escaped by the
    # library that drew them. Everything else is escaped by the template.
    environment.filters["drawing"] = Markup
    return environment.get_template("page.html.j2").render(
        source=source,
        plan=source.plan,
        headline=headline(source),
        facts=facts,
        missing=source.missing + step.missing,
        pictures=pictures,
        compared=tables.get("compared", ()),
        baselines=tables["baselines"],
        balance_text=balance_text(source.plan, source.measured),
        timelines=_timeline_texts(step),
        origin=_origin(source),
        recompute_color=RECOMPUTE_COLOR,
    )


def _timeline_texts(step: Step) -> dict[str, str]:
    spans = {"predicted": step.predicted, "measured": step.measured}
    until_s = max((span.end_s for s in spans.values() for span in s), default=0.0)
    return {
        name: timeline_text(one, until_s=until_s) for name, one in spans.items() if one
    }


def _origin(source: ReportSource) -> dict[str, str]:
    """Where every number of the page comes from."""
    plan: Plan = source.plan
    made = source.run or plan
    versions = ", ".join(f"{name} {version}" for name, version in made.versions.items())
    facts = {
        "Run" if source.run else "Plan": str(source.path),
        "Created": made.created,
        "Profile": f"{plan.profile.path} (SHA-256 {plan.profile.sha256[:12]})",
        "Versions": versions,
        "Links": describe_links(plan),
        "Attention": plan.attention,
        "Same report": f"planner report {source.path}",
    }
    if source.run:
        options = source.run.options.items()
        facts["Options"] = ", ".join(f"{name} {value}" for name, value in options)
    return {title: value for title, value in facts.items() if value}
