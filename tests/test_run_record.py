import math
from dataclasses import replace

import pytest
from plan_samples import small_plan

from planner import artifact
from planner.errors import ArtifactError
from planner.run_record import (
    Measured,
    MeasuredSpan,
    MeasuredStage,
    RunRecord,
    StepMetrics,
    check_run_dir,
    load_metrics,
    load_run,
    make_run_dir,
)
from planner.run_text import describe_run

SPAN = MeasuredSpan(action="0F0", start_s=0.0, end_s=0.25)
RECORD = RunRecord(
    plan=small_plan(),
    status="finished",
    options={"lr": 2e-5, "steps": None, "shuffle": True, "data": "builtin"},
    measured=Measured(
        step_s=1.25,
        tokens_per_s=12.8,
        stages=(
            MeasuredStage(peak_bytes=1024, forward_s=0.25, spans=(SPAN,)),
            MeasuredStage(peak_bytes=2048, forward_s=0.5),
        ),
    ),
)


def metrics(step: int, loss: float = 1.0) -> StepMetrics:
    return StepMetrics(
        step=step,
        loss=loss,
        grad_norm=1.0,
        lr=0.1,
        num_tokens=14,
        step_s=1.0,
        tokens_per_s=16.0,
    )


def write_metrics(folder, *texts: str) -> None:
    (folder / "metrics.jsonl").write_text("".join(texts), encoding="utf-8")


def line(step: int) -> str:
    return " ".join(artifact.to_json(metrics(step)).split()) + "\n"


def test_a_record_reads_back_as_the_same_value(tmp_path):
    artifact.save(RECORD, tmp_path / "run.json")
    assert load_run(tmp_path) == RECORD


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(ArtifactError, match=r"cannot read the run record .*run\.json"):
        load_run(tmp_path)


def test_metrics_read_back_one_a_step(tmp_path):
    write_metrics(tmp_path, line(1), line(2))
    assert load_metrics(tmp_path) == (metrics(1), metrics(2))


def test_a_line_torn_by_a_crash_is_left_out(tmp_path):
    write_metrics(tmp_path, line(1), line(2)[:20])
    assert load_metrics(tmp_path) == (metrics(1),)


def test_a_damaged_line_before_the_last_is_refused_by_number(tmp_path):
    write_metrics(tmp_path, line(1), "{}\n", line(3))
    with pytest.raises(ArtifactError, match=r"metrics\.jsonl line 2"):
        load_metrics(tmp_path)


def test_a_run_without_a_step_has_no_metrics(tmp_path):
    assert load_metrics(tmp_path) == ()


def test_a_new_run_wants_a_new_or_empty_folder(tmp_path):
    check_run_dir(tmp_path)
    check_run_dir(tmp_path / "new")
    (tmp_path / "run.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ArtifactError, match="holds another run; choose another --out"):
        check_run_dir(tmp_path)
    with pytest.raises(ArtifactError, match="is a file"):
        check_run_dir(tmp_path / "run.json")
    with pytest.raises(ArtifactError, match=r"cannot be made: .*run\.json is a file"):
        check_run_dir(tmp_path / "run.json" / "new" / "run")


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    make_run_dir(tmp_path / "new" / "run")
    make_run_dir(tmp_path / "new" / "run")
    (tmp_path / "file").touch()
    with pytest.raises(ArtifactError, match=r"cannot be made: Not a directory; choose"):
        make_run_dir(tmp_path / "file" / "run")


def test_the_text_of_a_run_puts_predicted_beside_measured():
    text = describe_run(RECORD, [metrics(1, loss=3.0), metrics(2, loss=2.5)])
    assert "step time: 1.00 s predicted, 1.25 s measured" in text
    assert "loss: 3.0000 in step 1, 2.5000 in step 2" in text
    assert "0 on a:0" in text
    assert "loss: 1.0000 in the only step" in describe_run(RECORD, [metrics(1)])
    evaluated = describe_run(RECORD, [replace(metrics(1), eval_loss=2.0)])
    assert "evaluation: loss 2.0000, perplexity 7.389 after step 1" in evaluated
    assert replace(metrics(1), eval_loss=1e9).eval_perplexity == math.inf
    assert "0 B / 1.00 KiB" in text


def test_the_text_of_a_run_has_i_and_w_and_the_memory_of_a_card_once():
    rows = (("0F0", "0F1", "0B0", "0B1", "1F0", "1F1", "1I0", "1W0", "1I1", "1W1"),)
    plan = small_plan()
    plan = replace(plan, schedule=replace(plan.schedule, actions=rows))
    measured = replace(
        RECORD.measured,
        stages=(
            MeasuredStage(peak_bytes=1024, forward_s=0.25, backward_s=0.5),
            MeasuredStage(
                peak_bytes=1024, backward_s=0.75, input_grad_s=0.5, weight_grad_s=0.25
            ),
        ),
    )
    lines = describe_run(replace(RECORD, plan=plan, measured=measured), []).splitlines()
    assert lines[1].split() == ["stage", "F", "B", "I", "W", "peak", "memory"]
    first, second = (" ".join(line.split()) for line in lines[3:5])
    assert first.endswith("500 ms - - 0 B / 1.00 KiB")
    assert first.count("ms") == second.count("ms") == 2
    assert second.endswith("with stage 0")
