"""A plan and the other ways, as a person reads them."""

import dataclasses

from plan_samples import small_plan

from planner.compare_text import describe_comparison, describe_others
from planner.plan import Baseline, MemoryBreakdown, StagePrediction
from planner.units import GIB

EVEN = Baseline(
    name="even layers",
    used_by="NeMo AutoModel",
    layers_per_stage=(2, 1),
    schedule="1f1b",
    microbatch_size=1,
    recompute="full",
    step_s=1.25,
    fits=True,
    card="a:1",
    judgement="25 % longer than the plan: a:1 works 400 ms on each microbatch",
)
SHARDED = Baseline(
    name="ZeRO-3",
    used_by="FSDP, DeepSpeed",
    layers_per_stage=(),
    microbatch_size=2,
    step_s=0.8,
    fits=False,
    missing_bytes=3 * GIB,
    card="a:0",
    judgement="a:0 lacks 3.00 GiB: a microbatch moves 1.00 GiB through each link",
)


def plan_with(*baselines):
    own = MemoryBreakdown(weights=23 * GIB, total=23 * GIB)
    predicted = StagePrediction(memory_bytes=own, capacity_bytes=24 * GIB)
    plan = small_plan(baselines=baselines)
    stages = tuple(dataclasses.replace(s, predicted=predicted) for s in plan.stages)
    return dataclasses.replace(plan, stages=stages)


def test_every_way_has_a_row_and_a_sentence():
    assert describe_comparison(plan_with(SHARDED, EVEN)).splitlines() == [
        "tiny on 2 cards (a), 2 sequences of 8 tokens a step, bfloat16, adamw",
        "",
        "way          used by              step  x plan  memory",
        "this plan                       1.00 s    1.00  fits, 1.00 GiB left",
        "    optimal, 1f1b, 2 microbatches of 1 (1+2 layers, 1 of them recomputed)",
        "even layers  NeMo AutoModel     1.25 s    1.25  fits",
        "    25 % longer than the plan: a:1 works 400 ms on each microbatch "
        "(2+1 layers, all recomputed)",
        "ZeRO-3       FSDP, DeepSpeed  (800 ms)  (0.80)  lacks 3.00 GiB",
        "    a:0 lacks 3.00 GiB: a microbatch moves 1.00 GiB through each link "
        "(microbatches of 2)",
        "",
        "nothing else that fits is quicker; the next is even layers, 1.25x the time",
    ]


def test_what_would_be_quicker_is_the_last_word():
    fitting = dataclasses.replace(SHARDED, fits=True, missing_bytes=0)
    single = dataclasses.replace(EVEN, name="single card", step_s=0.9)
    lines = describe_comparison(plan_with(single, EVEN, fitting)).splitlines()
    assert lines[5].startswith("ZeRO-3 ")
    assert " ".join(lines[-2:]) == (
        "ZeRO-3 would be quicker than the plan: 800 ms a step against 1.00 s, if all "
        "links keep their rate while all are used, and so would single card. planner "
        "runs the plan only."
    )


def test_where_nothing_else_fits_it_is_said():
    assert describe_comparison(plan_with(SHARDED)).endswith("\nnothing else fits")


def test_a_schedule_that_is_not_the_plan_s_is_named():
    other = dataclasses.replace(EVEN, schedule="gpipe")
    assert "(gpipe, 2+1 layers" in describe_comparison(plan_with(other))


def test_an_older_plan_is_told_without_sentences():
    old = Baseline(name="even layers", layers_per_stage=(2, 1), step_s=1.5, fits=False)
    lines = describe_comparison(plan_with(old)).splitlines()
    assert " ".join(lines[5].split()) == "even layers (1.50 s) (1.50) does not fit"
    assert lines[6].strip() == "2+1 layers"


def test_a_plan_for_one_card_or_without_other_ways_says_why():
    plan = plan_with()
    assert describe_comparison(plan).endswith(
        "\n\nnothing to compare with: the plan does not say what others would do; "
        "solve again"
    )
    schedule = dataclasses.replace(plan.schedule, actions=(("0F0", "1F0"),))
    alone = dataclasses.replace(plan, schedule=schedule)
    assert describe_comparison(alone).endswith("there is only one card")


def test_where_no_plan_fits_other_ways_have_no_ratio():
    fitting = dataclasses.replace(SHARDED, fits=True, missing_bytes=0)
    text = describe_others([EVEN, fitting])
    assert text.endswith("\nno plan fits, but this does: ZeRO-3, even layers")
    assert describe_others([SHARDED]).endswith("\nnone of these fits either")


def test_no_line_is_wider_than_100_columns_and_no_unit_stands_alone():
    long = dataclasses.replace(
        EVEN, judgement="x" * 60 + ": 12.5 GiB in 31 ms, 4 % of 21 s " * 5
    )
    lines = describe_comparison(plan_with(long)).splitlines()
    assert max(map(len, lines)) <= 100
    assert not any(line.split()[:1] in (["GiB"], ["ms,"], ["%"]) for line in lines)
