"""What the first process writes down while training and after it."""

import json
import os
import statistics
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from planner import artifact
from planner.plan import Plan
from planner.run_record import (
    Measured,
    MeasuredSpan,
    MeasuredStage,
    RunRecord,
    StepMetrics,
)
from planner.runtime.job import Job
from planner.units import format_seconds
from planner.versions import installed_versions


class Recorder:
    """Writes `run.json`, `metrics.jsonl` and the line a person reads.

    Args:
        job: The run.
    """

    def __init__(self, job: Job):
        self._job = job
        self._dir = Path(job.options["output_dir"])
        self._record = RunRecord(
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            versions=installed_versions(),
            plan=job.plan,
            options=job.options,
        )
        artifact.save(self._record, self._dir / "run.json")
        self._metrics: IO[str] = (self._dir / "metrics.jsonl").open(
            "w", encoding="utf-8"
        )

    def note(self, metrics: StepMetrics) -> None:
        """Write one step's line; it is on disk when this returns.

        Args:
            metrics: Of the step.
        """
        line = artifact.to_json(metrics)
        self._metrics.write(json.dumps(json.loads(line)) + "\n")
        self._metrics.flush()
        os.fsync(self._metrics.fileno())
        sys.stderr.write(
            f"step {metrics.step}/{self._job.num_steps}  loss {metrics.loss:.4f}  "
            f"grad norm {metrics.grad_norm:.3g}  {format_seconds(metrics.step_s)}  "
            f"{metrics.tokens_per_s:.0f} tokens/s\n"
        )

    def finish(self, stages: tuple[MeasuredStage, ...], step_s: list[float]) -> None:
        """Write what was measured and mark the run as finished.

        Args:
            stages: One entry a stage; spans on the clock of the machine.
            step_s: Of every timed step [s].
        """
        self._metrics.close()
        plan = self._job.plan
        median_s = statistics.median(step_s)
        measured = Measured(
            step_s=median_s,
            tokens_per_s=plan.global_batch_size * plan.seq_len / median_s,
            stages=_on_one_axis(stages),
        )
        record = replace(self._record, status="finished", measured=measured)
        artifact.save(trace(plan, measured), self._dir / "trace.json")
        artifact.save(record, self._dir / "run.json")


def _on_one_axis(stages: tuple[MeasuredStage, ...]) -> tuple[MeasuredStage, ...]:
    """Count time from the first action on any stage; fill in the bubble."""
    spans = [span for stage in stages for span in stage.spans]
    begin_s = min(span.start_s for span in spans)
    makespan_s = max(span.end_s for span in spans) - begin_s
    return tuple(
        replace(
            stage,
            bubble_fraction=1 - stage.busy_s / makespan_s,
            spans=tuple(
                MeasuredSpan(
                    action=span.action,
                    start_s=span.start_s - begin_s,
                    end_s=span.end_s - begin_s,
                )
                for span in stage.spans
            ),
        )
        for stage in stages
    )


def trace(plan: Plan, measured: Measured) -> dict[str, object]:
    """The measured step in Chrome's trace format, which Perfetto opens.

    Args:
        plan: The plan.
        measured: What was measured.

    Returns:
        JSON data; one track a device, times in microseconds.
    """
    names = [
        {
            "ph": "M",
            "name": "process_name",
            "pid": stage.index,
            "args": {"name": f"stage {stage.index} on {stage.device}"},
        }
        for stage in plan.stages
    ]
    events = [
        {
            "ph": "X",
            "name": span.action,
            "pid": stage.index,
            "tid": 0,
            "ts": span.start_s * 1e6,
            "dur": (span.end_s - span.start_s) * 1e6,
        }
        for stage, found in zip(plan.stages, measured.stages, strict=True)
        for span in found.spans
    ]
    return {"displayTimeUnit": "ms", "traceEvents": [*names, *events]}
