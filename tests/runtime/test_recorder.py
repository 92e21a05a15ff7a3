"""What a run writes down, step by step and at its end."""

import json
from dataclasses import replace

import pytest
from plan_maker import make_plan

from planner.run_record import (
    MeasuredDevice,
    MeasuredSpan,
    MeasuredStage,
    StepMetrics,
    load_metrics,
    load_run,
)
from planner.runtime.job import Job
from planner.runtime.options import RunOptions
from planner.runtime.recorder import Recorder
from planner.runtime.trace import trace


@pytest.fixture
def recorder(job):
    recorder = Recorder(job)
    yield recorder
    recorder.finish(FIGURES, [2.0])


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


def device(name, busy_s, **stages):
    """Stages by name, such as `s1`."""
    indices = tuple(int(key[1:]) for key in stages)
    figures = MeasuredDevice(device=name, stages=indices, busy_s=busy_s)
    return figures, tuple(stages.values())


# One microbatch through two stages, on the clock of the machine:
#   F0 .. .. B0        103 104 105 106 107
#   .. F0 B0 ..
FIGURES = (
    device("cpu:0", 2.0, s0=stage(2.0, ("0F0", 103.0, 104.0), ("0B0", 106.0, 107.0))),
    device("cpu:1", 2.0, s1=stage(2.0, ("1F0", 104.0, 105.0), ("1B0", 105.0, 106.0))),
)
# The same through three, the last one on the device of the first:
#   0F .. 2F 2B .. 0B   103 104 105 106 107 108 109
#   .. 1F .. .. 1B ..
FOLDED = (
    device(
        "cpu:0",
        4.0,
        s0=stage(2.0, ("0F0", 103.0, 104.0), ("0B0", 108.0, 109.0)),
        s2=stage(2.0, ("2F0", 105.0, 106.0), ("2B0", 106.0, 107.0)),
    ),
    device("cpu:1", 2.0, s1=stage(2.0, ("1F0", 104.0, 105.0), ("1B0", 107.0, 108.0))),
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
    recorder.finish(FIGURES, [9.0, 2.0, 1.0])
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


def test_stages_of_one_device_share_its_bubble(job, tmp_path):
    order = ("0F0 2F0 2B0 0B0", "1F0 1B0")
    layers = ["embedding", "block", "head"]
    plan = make_plan("model", layers, [1, 1, 1], actions=order, num_microbatches=1)
    Recorder(replace(job, plan=plan)).finish(FOLDED, [2.0])
    measured = load_run(tmp_path / "run").measured
    assert [stage.busy_s for stage in measured.stages] == [2.0, 2.0, 2.0]
    assert [stage.bubble_fraction for stage in measured.stages] == pytest.approx(
        [1 - 2 / 6] * 3
    )
    assert [(d.device, d.stages, d.busy_s) for d in measured.devices] == [
        ("cpu:0", (0, 2), 4.0),
        ("cpu:1", (1,), 2.0),
    ]
    assert [d.bubble_fraction for d in measured.devices] == pytest.approx(
        [1 - 4 / 6, 1 - 2 / 6]
    )


def test_the_trace_of_the_measured_step_is_written(job, tmp_path):
    Recorder(job).finish(FIGURES, [2.0])
    written = json.loads((tmp_path / "run" / "trace.json").read_text())
    assert written == trace(job.plan, load_run(tmp_path / "run").measured)
