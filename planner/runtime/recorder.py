"""What the first process writes down while training and after it."""

import json
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from planner import artifact
from planner.run_record import (
    Measured,
    MeasuredDevice,
    MeasuredSpan,
    MeasuredStage,
    RunRecord,
    StepMetrics,
    load_metrics,
)
from planner.runtime.job import Job
from planner.runtime.measurements import DeviceFigures
from planner.runtime.trace import trace
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
        path = self._dir / "metrics.jsonl"
        _keep_steps(path, job.num_done)
        self._metrics: IO[str] = path.open("a", encoding="utf-8")

    def note(self, metrics: StepMetrics) -> None:
        """Write one step's line; it is on disk when this returns.

        Args:
            metrics: Of the step.
        """
        self._metrics.write(_line(metrics))
        self._metrics.flush()
        os.fsync(self._metrics.fileno())
        sys.stderr.write(
            f"step {metrics.step}/{self._job.num_steps}  loss {metrics.loss:.4f}  "
            f"grad norm {metrics.grad_norm:.3g}  {format_seconds(metrics.step_s)}  "
            f"{metrics.tokens_per_s:.0f} tokens/s{_evaluated(metrics)}\n"
        )

    def stop(self) -> None:
        """Mark the run as one that was asked to stop, and saved."""
        self._metrics.close()
        artifact.save(replace(self._record, status="stopped"), self._dir / "run.json")

    def finish(self, figures: Sequence[DeviceFigures], step_s: list[float]) -> None:
        """Write what was measured and mark the run as finished.

        Args:
            figures: One entry a device; spans on the clock of the machine.
            step_s: Of every timed step [s].
        """
        self._metrics.close()
        plan = self._job.plan
        median_s = statistics.median(step_s)
        devices, stages = _on_one_axis(figures)
        measured = Measured(
            step_s=median_s,
            tokens_per_s=plan.global_batch_size * plan.seq_len / median_s,
            stages=stages,
            devices=devices,
        )
        record = replace(self._record, status="finished", measured=measured)
        artifact.save(trace(plan, measured), self._dir / "trace.json")
        artifact.save(record, self._dir / "run.json")


def _evaluated(metrics: StepMetrics) -> str:
    if metrics.eval_loss is None:
        return ""
    return (
        f"  eval loss {metrics.eval_loss:.4f}  perplexity {metrics.eval_perplexity:.4g}"
    )


def _keep_steps(path: Path, num_done: int) -> None:
    """Drop the lines of steps that are not in the checkpoint, and a torn one."""
    kept = [entry for entry in load_metrics(path.parent) if entry.step <= num_done]
    text = "".join(_line(entry) for entry in kept)
    artifact.write_atomically(path, text.encode())


def _line(metrics: StepMetrics) -> str:
    return json.dumps(json.loads(artifact.to_json(metrics))) + "\n"


def _on_one_axis(
    figures: Sequence[DeviceFigures],
) -> tuple[tuple[MeasuredDevice, ...], tuple[MeasuredStage, ...]]:
    """Count time from the first action on any device; fill in the bubbles."""
    found = {
        index: stage
        for device, stages in figures
        for index, stage in zip(device.stages, stages, strict=True)
    }
    spans = [span for stage in found.values() for span in stage.spans]
    begin_s = min(span.start_s for span in spans)
    makespan_s = max(span.end_s for span in spans) - begin_s
    devices = tuple(
        replace(device, bubble_fraction=1 - device.busy_s / makespan_s)
        for device, _ in figures
    )
    return devices, tuple(
        replace(
            found[index],
            bubble_fraction=1 - found[index].busy_s / makespan_s,
            spans=tuple(
                MeasuredSpan(
                    action=span.action,
                    start_s=span.start_s - begin_s,
                    end_s=span.end_s - begin_s,
                )
                for span in found[index].spans
            ),
        )
        for index in sorted(found)
    )
