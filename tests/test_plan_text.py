"""A plan as a person reads it."""

import dataclasses

import pytest

from planner.model_profile import ModelInfo
from planner.plan import (
    Baseline,
    FreeCut,
    LinkPlan,
    MemoryBreakdown,
    OptimizerPlan,
    Plan,
    PlanPrediction,
    ProfileRef,
    SchedulePlan,
    SolverReport,
    StagePlan,
    StagePrediction,
)
from planner.plan_text import describe_links, describe_plan, layer_ranges, memory_bar
from planner.units import GIB


def stage(index, names, first, gib, recompute=()):
    used = int(gib * GIB)
    return StagePlan(
        index=index,
        device=f"rtx3090:{index}",
        first_layer=first,
        last_layer=first + len(names) - 1,
        layers=names,
        recompute=recompute,
        predicted=StagePrediction(
            memory_bytes=MemoryBreakdown(weights=used, total=used),
            capacity_bytes=24 * GIB,
            forward_s=0.010,
            backward_s=0.020,
            busy_fraction=0.5,
        ),
    )


PLAN = Plan(
    model=ModelInfo(id="tiny"),
    profile=ProfileRef(path="", sha256=""),
    seq_len=512,
    global_batch_size=8,
    stages=(
        stage(0, ("embed", "layers.0", "layers.1"), 0, 12.0),
        stage(1, ("layers.2", "head"), 3, 23.5, recompute=("layers.2",)),
    ),
    schedule=SchedulePlan(
        name="1f1b", num_microbatches=8, microbatch_size=1, actions=((), ())
    ),
    optimizer=OptimizerPlan(name="adamw", bytes_per_parameter=16),
    predicted=PlanPrediction(
        step_s=0.48, makespan_s=0.48, bubble_fraction=0.25, tokens_per_s=8533.0
    ),
    solver=SolverReport(
        status="optimal", bound_s=0.48, gap=0.0, candidates=3, solve_s=0.25
    ),
    baselines=(
        Baseline(name="even layers", layers_per_stage=(3, 2), step_s=0.6, fits=True),
        Baseline(name="equal time", layers_per_stage=(2, 3), step_s=0.5, fits=False),
    ),
)


def test_a_plan_is_one_table_one_result_and_one_proof():
    assert describe_plan(PLAN).splitlines() == [
        "tiny on 2 cards: 1f1b, 8 microbatches of 1 x 512 tokens, bfloat16, adamw",
        "",
        "stage  device     memory                            busy        F        B",
        "    0  rtx3090:0  [#####-----]  12.0 of 24.0 GiB  50.0 %  10.0 ms  20.0 ms",
        "       embed, layers.0-1",
        "    1  rtx3090:1  [##########]  23.5 of 24.0 GiB  50.0 %  10.0 ms  20.0 ms",
        "       layers.2, head (1 recomputed)",
        "",
        "480 ms a step, 8.53 k tokens/s, bubble 25.0 %, 1.50 of 2 cards busy",
        "not work: bubble 25.0 %; rtx3090:1 has least room, 512 MiB left",
        "beside it: even layers 1.25x the time",
        "do not fit: equal time",
        "optimal: no cut has a shorter step under a named schedule; 3 simulated in "
        "250 ms",
    ]


def test_another_way_that_is_quicker_is_said_clearly():
    quick = Baseline(name="ZeRO-3", layers_per_stage=(), step_s=0.4, fits=True)
    too_large = dataclasses.replace(quick, name="single card", step_s=0.1, fits=False)
    plan = dataclasses.replace(PLAN, baselines=(*PLAN.baselines, too_large, quick))
    lines = describe_plan(plan).splitlines()
    assert "quicker: ZeRO-3 would take 400 ms a step; planner compare says why" in lines
    assert "beside it: ZeRO-3 0.83x the time, even layers 1.25x the time" in lines
    assert "do not fit: equal time, single card" in lines


def joined_by(*links):
    return tuple(
        LinkPlan(name=name, bandwidth=1e9, latency_s=0.0, origin=origin)
        for name, origin in links
    )


@pytest.mark.parametrize(
    ("links", "text"),
    [
        ([], ""),
        ([("pcie4x8", "assumed")] * 3, "pcie4x8 (assumed)"),
        (
            [("free", "given"), ("free", "given"), ("2GB/s,9us", "given")],
            "0-2 free; 2-3 2GB/s,9us (given)",
        ),
    ],
)
def test_links_are_said_once_where_they_are_equal(links, text):
    plan = dataclasses.replace(PLAN, links=joined_by(*links))
    assert describe_links(plan) == text
    assert (f"links: {text}" in describe_plan(plan).splitlines()) == bool(text)


def test_stages_of_one_card_share_its_memory_and_busy_time():
    row = ("0F0", "1F0", "1B0", "0B0")
    schedule = dataclasses.replace(PLAN.schedule, actions=(row,))
    lines = describe_plan(dataclasses.replace(PLAN, schedule=schedule)).splitlines()
    assert lines[0].startswith("tiny on 1 card: ")
    assert "35.5 of 24.0 GiB  100.0 %" in lines[3]
    assert lines[5].startswith("    1  rtx3090:1  with stage 0 ")


def test_short_layer_names_stand_in_the_row():
    short = dataclasses.replace(PLAN, stages=PLAN.stages[:1])
    header, row = describe_plan(short).splitlines()[2:4]
    assert header.split()[-1] == "layers"
    assert row.endswith("20.0 ms  embed, layers.0-1")


def test_a_plan_found_in_time_tells_its_gap():
    solver = SolverReport(
        status="feasible", bound_s=0.456, gap=0.05, candidates=3, solve_s=30.0
    )
    last = describe_plan(dataclasses.replace(PLAN, solver=solver)).splitlines()[-1]
    assert last.startswith("feasible: no more than 5.0 % above the best possible")


def test_no_line_is_wider_than_100_columns():
    names = tuple(f"model.language_model.layers.{i}.inner" for i in range(9))
    wide = dataclasses.replace(PLAN, stages=(stage(0, names, 0, 1.0),))
    lines = describe_plan(wide).splitlines()
    assert max(map(len, lines)) <= 100
    assert all(name in " ".join(lines) for name in names)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (
            ["embed", "layers.0", "layers.1", "layers.2", "head"],
            "embed, layers.0-2, head",
        ),
        (["h.7"], "h.7"),
        (["h.7", "h.9", "h.10"], "h.7, h.9-10"),
        (["a.0", "b.1"], "a.0, b.1"),
        ([], ""),
    ],
)
def test_layer_ranges(names, text):
    assert layer_ranges(names) == text


def test_the_bar_is_to_scale():
    assert memory_bar(0, 10) == "[----------]"
    assert memory_bar(4, 10) == "[####------]"
    assert memory_bar(99, 10) == "[##########]"
    assert memory_bar(1, 0) == "[----------]"


@pytest.mark.parametrize(
    ("step_s", "line"),
    [
        (0.48, "your cut: no quicker one is known"),
        (
            0.40,
            "your cut costs 80.0 ms a step, 20.0 %: 1+4 layers under zb-v, "
            "microbatches of 2, take 400 ms",
        ),
    ],
)
def test_what_a_wished_cut_costs_is_said(step_s, line):
    free = FreeCut(
        layers_per_stage=(1, 4), schedule="zb-v", microbatch_size=2, step_s=step_s
    )
    solver = dataclasses.replace(PLAN.solver, free_cut=free, status="optimal")
    text = describe_plan(dataclasses.replace(PLAN, solver=solver))
    assert line in " ".join(text.split())
    assert "your cut has no shorter step under a named schedule" in text
