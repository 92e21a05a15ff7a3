"""Of all the errors of a run, the one that started it is shown."""

import pytest

from planner.plan import StagePlan
from planner.runtime import failures
from planner.runtime.failures import (
    Failure,
    StageError,
    blamed_on,
    first_failure,
    layer_range,
    save_failure,
)


def stage(index, *layers):
    return StagePlan(
        index=index,
        device=f"cpu:{index}",
        first_layer=0,
        last_layer=len(layers) - 1,
        layers=layers,
    )


def failure(device, message, time_s):
    where = f"stage {device} (head)"
    return Failure(device=device, where=where, message=message, time_s=time_s)


def test_the_earliest_real_error_comes_first(tmp_path):
    for found in (
        failure(0, "RuntimeError: later", 3.0),
        failure(1, "ValueError: the cause", 2.0),
        failure(2, "DistBackendError: NCCL timed out", 1.0),
    ):
        save_failure(found, tmp_path)
    assert first_failure(tmp_path) == failure(1, "ValueError: the cause", 2.0)


@pytest.mark.parametrize(
    "message",
    [
        "RuntimeError: Connection closed by peer [127.0.0.1]:4000",
        "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Timed out",
        "ConnectionResetError: Connection reset by peer",
        "BrokenPipeError: [Errno 32] Broken pipe",
        "DistBackendError: NCCL communicator was aborted",
    ],
)
def test_an_echo_is_shown_after_any_real_error(tmp_path, message):
    save_failure(failure(0, message, 1.0), tmp_path)
    assert first_failure(tmp_path).message == message, "better than nothing"
    save_failure(failure(1, "MemoryError: no room", 9.0), tmp_path)
    assert first_failure(tmp_path).message == "MemoryError: no room"


def test_without_any_report_there_is_no_failure(tmp_path):
    assert first_failure(tmp_path) is None


def test_a_failure_names_its_stage_and_its_cause_in_one_line(monkeypatch):
    monkeypatch.setattr(failures.time, "time", lambda: 7.0)
    error = RuntimeError("1F0 failed")
    error.__cause__ = ValueError("shapes\n  differ:  3 and 4")
    layers = ("model.layers.2", "model.layers.3", "head")
    found = Failure.of(error, 1, [stage(1, *layers)])
    assert found == Failure(
        device=1,
        where="stage 1 (model.layers.2 to head)",
        message="ValueError: shapes differ: 3 and 4",
        time_s=7.0,
    )
    assert found.sentence == (
        "stage 1 (model.layers.2 to head) failed: ValueError: shapes differ: 3 and 4"
    )


def test_of_several_stages_of_a_device_the_one_at_work_is_named():
    stages = [stage(0, "embedding"), stage(3, "head")]
    with pytest.raises(StageError) as raised, blamed_on(3):
        raise ValueError("no room")  # noqa: EM101
    assert Failure.of(raised.value, 0, stages).sentence == (
        "stage 3 (head) failed: ValueError: no room"
    )
    assert Failure.of(ValueError("no room"), 0, stages).sentence == (
        "stages 0 (embedding) and 3 (head) failed: ValueError: no room"
    )


def test_an_error_without_text_is_named():
    found = Failure.of(MemoryError(), 0, [stage(0, "embedding")])
    assert found.message == "MemoryError: MemoryError"


def test_layers_are_named_as_a_person_says_them():
    assert layer_range(stage(0, "head")) == "head"
    assert layer_range(stage(0, "a", "b", "c")) == "a to c"
