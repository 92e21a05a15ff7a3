import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report_samples import (
    make_measured,
    make_metrics,
    make_plan,
    make_v_plan,
    write_run,
)

from planner import artifact
from planner.artifact import save
from planner.errors import ArtifactError
from planner.report import write_report
from planner.report.page import report_files
from planner.report.source import read_source

PNG = b"\x89PNG\r\n\x1a\n"


class Outline(HTMLParser):
    """What a browser would see: tags, ids, what is loaded, open elements."""

    VOID = frozenset({"meta", "br", "img", "link", "hr"})

    def __init__(self):
        super().__init__()
        self.tags, self.ids, self.loads, self.open = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        attrs = dict(attrs)
        if "id" in attrs:
            self.ids.append(attrs["id"])
        for name in ("src", "href", "xlink:href", "data", "srcset"):
            if name in attrs:
                self.loads.append(attrs[name])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def outline(html):
    parser = Outline()
    parser.feed(html)
    assert not parser.open
    return parser


@pytest.fixture(scope="module")
def run_report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run_report")
    plan = make_plan()
    run_dir = write_run(
        folder / "run", plan, measured=make_measured(plan), metrics=make_metrics()
    )
    page = write_report(run_dir, folder / "report")
    return page, page.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def plan_report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plan_report")
    save(make_plan(), folder / "plan.json")
    page = write_report(folder / "plan.json", folder / "report")
    return page, page.read_text(encoding="utf-8")


def test_a_run_has_a_page_figures_and_numbers(run_report):
    page, _ = run_report
    names = {path.name for path in page.parent.iterdir()}
    assert page.name == "report.html"
    assert names == {
        "report.html",
        "stage_times.png",
        "memory.png",
        "timeline.png",
        "training.png",
        "predicted_against_measured.csv",
    }
    for path in page.parent.glob("*.png"):
        assert path.read_bytes().startswith(PNG)


def test_a_plan_has_what_needs_no_run(plan_report):
    page, html = plan_report
    names = {path.name for path in page.parent.iterdir()}
    assert names == {"report.html", "stage_times.png", "memory.png", "timeline.png"}
    assert "<h2>Training</h2>" not in html
    assert "<h2>Predicted against measured</h2>" not in html
    assert 'class="missing"' not in html


def test_the_verdict_comes_first(run_report):
    _, html = run_report
    heading = re.search("<h1>(.*)</h1>", html)
    assert heading
    assert heading[1].startswith(
        "small-model on 2 \N{MULTIPLICATION SIGN} rtx3090: fits, "
    )
    assert html.index("<h1>") < html.index("<dt>Proof</dt>") < html.index("<svg")


def test_everything_is_inside_the_page(run_report):
    _, html = run_report
    loads = outline(html).loads
    assert loads  # the figures refer to their own parts
    assert all(target.startswith(("#", "data:")) for target in loads)
    assert not re.search(r"url\((?!#)|@import|<script|<link", html)


def test_each_figure_is_inline_wide_and_narrow(run_report):
    _, html = run_report
    seen = outline(html)
    assert seen.tags.count("figure") == 4
    assert seen.tags.count("svg") == 8
    assert len(seen.ids) == len(set(seen.ids))
    targets = {target[1:] for target in seen.loads if target.startswith("#")}
    targets |= set(re.findall(r"url\(#([^)]*)\)", html))
    assert targets <= set(seen.ids)


def test_figures_take_the_colours_of_the_page(run_report):
    _, html = run_report
    assert "prefers-color-scheme: dark" in html
    drawings = "".join(re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL))
    assert "var(--ink)" in drawings
    assert "#1c1d21" not in drawings


def test_each_stage_lists_its_layers(plan_report):
    _, html = plan_report
    assert "Stage 1, rtx3090:1: 3 layers, 1 recomputed" in html
    assert html.count("<li") == 6
    assert html.count('<li class="recomputed"') == 2


def test_the_page_says_where_its_numbers_come_from(run_report):
    _, html = run_report
    for fact in ("torch 2.13.0", "2025-01-03T03:04:05", "profiles/small-model.json"):
        assert fact in html


def test_names_are_escaped(tmp_path):
    plan = make_plan()
    model = replace(plan.model, id="<script>alert(1)</script>&", architecture="A<b>")
    stage = replace(
        plan.stages[0], device="<i>:0", layers=("<u>", "b", "c"), recompute=()
    )
    save(
        replace(plan, model=model, stages=(stage, plan.stages[1])), tmp_path / "p.json"
    )
    html = write_report(tmp_path / "p.json", tmp_path).read_text(encoding="utf-8")
    for tag in ("<script", "<b>", "<i>", "<u>"):
        assert tag not in html
    outline(html)


def test_the_same_source_makes_the_same_bytes(plan_report, tmp_path):
    page, html = plan_report
    again = write_report(page.parent.parent / "plan.json", tmp_path)
    assert again.read_text(encoding="utf-8") == html
    for path in page.parent.glob("*.png"):
        assert path.read_bytes() == (tmp_path / path.name).read_bytes()


def test_a_run_that_ended_early_reports_what_there_is(tmp_path):
    run_dir = write_run(tmp_path / "run", make_plan(), metrics=make_metrics(3))
    with (run_dir / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "lo')
    html = write_report(run_dir, tmp_path / "out").read_text(encoding="utf-8")
    assert "has not finished (3 steps recorded)" in html
    assert "Loss falls from 4 to 3.333 in 3 steps" in html
    assert "<h2>Predicted against measured</h2>" not in html
    assert (tmp_path / "out" / "timeline.png").exists()


def test_a_report_leaves_no_figure_of_an_earlier_one(tmp_path):
    plan = make_plan()
    run_dir = write_run(
        tmp_path / "run", plan, measured=make_measured(plan), metrics=make_metrics()
    )
    write_report(run_dir, tmp_path / "report")
    assert (tmp_path / "report" / "training.png").exists()
    artifact.save(plan, tmp_path / "plan.json")
    write_report(tmp_path / "plan.json", tmp_path / "report")
    names = {path.name for path in (tmp_path / "report").iterdir()}
    assert names == {"report.html", "stage_times.png", "memory.png", "timeline.png"}


def test_a_plan_whose_order_cannot_run_is_reported_without_a_timeline(tmp_path):
    plan = make_plan(num_microbatches=1)
    schedule = replace(plan.schedule, actions=(("0F0", "0I0", "0W0"), ("1F0", "1B0")))
    save(replace(plan, schedule=schedule, baselines=()), tmp_path / "plan.json")
    html = write_report(tmp_path / "plan.json", tmp_path).read_text(encoding="utf-8")
    assert "No timeline: the plan holds no times for I and W." in html
    assert "<h2>What others would do</h2>" not in html
    assert not (tmp_path / "timeline.png").exists()


def test_a_folder_that_cannot_be_written_is_an_error_with_a_next_step(tmp_path):
    save(make_plan(), tmp_path / "plan.json")
    with pytest.raises(
        ArtifactError, match=r"cannot write .*; choose another folder.* -o"
    ):
        write_report(tmp_path / "plan.json", tmp_path / "plan.json" / "out")


def test_nothing_is_written_for_a_source_that_is_wrong(tmp_path):
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(ArtifactError, match="not a valid plan"):
        write_report(tmp_path / "plan.json", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_run_with_several_stages_a_card_has_a_whole_report(tmp_path):
    plan = make_v_plan()
    run_dir = write_run(
        tmp_path / "run",
        plan,
        measured=make_measured(plan, with_devices=True),
        metrics=make_metrics(2),
    )
    html = write_report(run_dir, tmp_path / "out").read_text(encoding="utf-8")
    assert 'class="missing"' not in html
    assert "<td>stages 0, 3: memory</td>" in html
    assert html.count("Stage 3, rtx3090:0: 3 layers") == 1
    outline(html)


def test_the_sample_of_the_repository_is_what_it_would_be_if_made_now(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
    sample = Path("reports") / "smollm2-135m-2-cpu"
    files = report_files(read_source(sample))
    assert {path.name for path in sample.iterdir()} == {
        *files,
        *("run.json", "metrics.jsonl"),
    }
    found, made = ((sample / "report.html").read_text(), files["report.html"].decode())
    # How a drawing is written down depends on the version of the library.
    assert without_drawings(found) == without_drawings(made)


def without_drawings(html):
    return re.sub(r"<svg.*?</svg>", "", html, flags=re.DOTALL)
