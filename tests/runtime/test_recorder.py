"""What a run writes down, step by step and at its end."""

import json

import pytest
from plan_maker import make_plan

from planner.run_record import (
    MeasuredSpan,
    MeasuredStage,
    StepMetrics,
    load_metrics,
    load_run,
)
from planner.runtime.job import Job
from planner.runtime.options import RunOptions
from planner.runtime.recorder import Recorder, trace


@pytest.fixture
def recorder(job):
    recorder = Recorder(job)
    yield recorder
    recorder.finish(STAGES, [2.0])


@pytest.fixture
def job(tmp_path):
    plan = make_plan("model", ["embedding", "block", "head"], [1, 2])
    options = RunOptions(output_dir=tmp_path / "run", steps=3)
    options.output_dir.mkdir()
    return Job(
        plan=plan,
        options=options.as_record(),
        num_steps=3,
        pretrained=False,
        sequences_path="",
        work_dir=str(tmp_path),
    )


def metrics(step):
    return StepMetrics(
        step=step,
        loss=2.5 / step,
        grad_norm=0.125,
        lr=0.01,
        num_tokens=60,
        step_s=0.5,
        tokens_per_s=128.0,
    )


def stage(busy_s, *spans):
    return MeasuredStage(
        peak_bytes=1,
        busy_s=busy_s,
        spans=tuple(MeasuredSpan(action=a, start_s=b, end_s=e) for a, b, e in spans),
    )


# One microbatch through two stages, on the clock of the machine:
#   F0 .. .. B0        103 104 105 106 107
#   .. F0 B0 ..
STAGES = (
    stage(2.0, ("0F0", 103.0, 104.0), ("0B0", 106.0, 107.0)),
    stage(2.0, ("1F0", 104.0, 105.0), ("1B0", 105.0, 106.0)),
)


def test_a_run_that_goes_on_has_its_plan_but_no_measurement(job, recorder, tmp_path):
    record = load_run(tmp_path / "run")
    assert record.status == "running"
    assert record.plan == job.plan
    assert record.options == job.options
    assert record.measured is None
    assert load_metrics(tmp_path / "run") == ()


def test_every_step_is_on_disk_at_once_and_said(recorder, tmp_path, capsys):
    for step in (1, 2):
        recorder.note(metrics(step))
        assert load_metrics(tmp_path / "run") == tuple(
            metrics(n) for n in range(1, step + 1)
        )
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == 2
    assert json.loads(lines[1])["loss"] == 1.25
    captured = capsys.readouterr()
    assert captured.out == ""
    said = "step 1/3  loss 2.5000  grad norm 0.125  500 ms  128 tokens/s"
    assert captured.err.splitlines()[0] == said


def test_times_are_counted_from_the_first_action_and_bubbles_filled_in(job, tmp_path):
    recorder = Recorder(job)
    recorder.note(metrics(1))
    recorder.finish(STAGES, [9.0, 2.0, 1.0])
    record = load_run(tmp_path / "run")
    assert record.status == "finished"
    assert record.measured.step_s == 2.0, "the median"
    # Four sequences of 16 tokens.
    assert record.measured.tokens_per_s == 4 * 16 / 2.0
    spans = [
        [(span.action, span.start_s, span.end_s) for span in found.spans]
        for found in record.measured.stages
    ]
    assert spans == [
        [("0F0", 0.0, 1.0), ("0B0", 3.0, 4.0)],
        [("1F0", 1.0, 2.0), ("1B0", 2.0, 3.0)],
    ]
    assert [found.bubble_fraction for found in record.measured.stages] == [0.5, 0.5]


def test_the_trace_has_a_track_a_stage_in_microseconds(job, tmp_path):
    Recorder(job).finish(STAGES, [2.0])
    written = json.loads((tmp_path / "run" / "trace.json").read_text())
    assert written == trace(job.plan, load_run(tmp_path / "run").measured)
    names = [e["args"]["name"] for e in written["traceEvents"] if e["ph"] == "M"]
    assert names == ["stage 0 on cpu:0", "stage 1 on cpu:1"]
    drawn = [e for e in written["traceEvents"] if e["ph"] == "X"]
    assert [(e["pid"], e["name"], e["ts"], e["dur"]) for e in drawn] == [
        (0, "0F0", 0.0, 1e6),
        (0, "0B0", 3e6, 1e6),
        (1, "1F0", 1e6, 1e6),
        (1, "1B0", 2e6, 1e6),
    ]
