from dataclasses import replace
from pathlib import Path

from report_samples import make_measured, make_plan, make_v_plan

from planner.report.source import ReportSource
from planner.report.verdict import cards, headline, model_name, verdict
from planner.run_record import RunRecord


def facts(plan, measured=None, spans=()):
    return {fact.title: fact for fact in verdict(source_of(plan, measured), spans)}


def source_of(plan, measured=None):
    run = RunRecord(plan=plan, measured=measured) if measured else None
    return ReportSource(path=Path("plan.json"), plan=plan, run=run)


def test_the_headline_answers_the_four_questions():
    assert headline(source_of(make_plan())) == (
        "small-model on 2 \N{MULTIPLICATION SIGN} rtx3090: "
        "fits, 1.75 s a step predicted"
    )
    plan = make_plan(capacity_gib=10)
    measured = make_measured(plan)
    line = headline(source_of(plan, replace(measured, step_s=2.0)))
    assert line.endswith("does not fit, 2.00 s a step measured")


def test_cards_are_counted_by_kind():
    plan = make_plan(((0.1, 0.2),) * 3)
    other = replace(plan.stages[2], device="rtx4090:0")
    mixed = replace(plan, stages=(*plan.stages[:2], other))
    times = "\N{MULTIPLICATION SIGN}"
    assert cards(mixed) == f"2 {times} rtx3090, 1 {times} rtx4090"


def test_a_model_folder_is_named_by_its_last_part():
    plan = make_plan()
    model = replace(plan.model, id="/home/me/models/small/")
    assert model_name(replace(plan, model=model)) == "small"


def test_every_question_has_an_answer():
    titles = "Model Cards Fits Step_time Tokens_a_second Bubble Bottleneck Proof"
    assert list(facts(make_plan())) == [t.replace("_", " ") for t in titles.split()]


def test_numbers_are_called_predicted_or_measured():
    plan = make_plan()
    assert facts(plan)["Step time"].value == "1.75 s predicted"
    fact = facts(plan, make_measured(plan))["Step time"]
    assert fact.value.endswith(" measured")
    assert fact.detail.startswith("1.75 s predicted")


def test_fit_says_what_is_left_or_missing():
    assert facts(make_plan())["Fits"].value == "yes, 4.60 GiB to spare"
    assert facts(make_plan(capacity_gib=18.1))["Fits"].value == "no, 1.00 GiB missing"
    assert facts(make_plan(capacity_gib=0))["Fits"].value == "capacity not known"


def test_days_for_a_billion_tokens_follow_from_the_rate():
    plan = make_plan()
    slow = replace(plan, predicted=replace(plan.predicted, tokens_per_s=1e9 / 86_400))
    assert facts(slow)["Tokens a second"].detail == "1.0 days for 1 B tokens"
    own = verdict(source_of(slow), (), 2_500_000_000)
    assert own[4].detail == "2.5 days for 2.5 B tokens"
    few = verdict(source_of(slow), (), 1_000_000)
    assert few[4].detail == "0.024 hours for 1,000,000 tokens"


def test_a_plan_that_is_not_proven_is_not_called_optimal():
    plan = make_plan()
    assert facts(plan)["Proof"].value == "optimal"
    solver = replace(plan.solver, status="feasible", gap=0.031)
    proof = facts(replace(plan, solver=solver))["Proof"].value
    assert proof == "feasible, at most 3.1 % from optimal"


def test_cards_with_several_stages_are_counted_once():
    plan = make_v_plan()
    assert cards(plan) == "2 \N{MULTIPLICATION SIGN} rtx3090"
    found = facts(plan, make_measured(plan, with_devices=True))
    assert found["Bottleneck"].value == "stages 0, 3, rtx3090:0"
    assert found["Fits"].value == "yes, 6.30 GiB to spare"


def test_equal_stages_have_no_bottleneck():
    assert facts(make_plan(((0.1, 0.2), (0.1, 0.2))))["Bottleneck"].value == "none"
