"""Other processes at work while a layer is timed."""

import multiprocessing
import time

import pytest
from layer_runs import CONFIGS
from model_folders import save_model

from planner.errors import ModelError
from planner.measure.load import Load
from planner.measure.load_process import LayerWork, LoadedModel


@pytest.fixture(scope="module")
def llama_folder(tmp_path_factory):
    return save_model(CONFIGS["llama"], tmp_path_factory.mktemp("models") / "llama")


def loaded(folder):
    return LoadedModel(
        id=str(folder),
        revision=None,
        trust_remote_code=False,
        dtype="float32",
        attention="auto",
        seq_len=16,
    )


@pytest.fixture
def new_processes():
    """Processes that the test started; other tests may have some of their own."""
    before = set(multiprocessing.active_children())
    return lambda: set(multiprocessing.active_children()) - before


def busy_ticks(process):
    """Time on the processor so far, from the kernel's own count [ticks]."""
    with open(f"/proc/{process.pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@pytest.mark.timeout(120)
def test_the_others_work_on_the_layer_until_the_next_and_end_with_it(
    llama_folder, new_processes
):
    with Load(2, loaded(llama_folder)) as load:
        (process,) = new_processes()
        for work in (
            LayerWork(size=1, layer=1, num_copies=2),
            LayerWork(size=1, layer=1, num_copies=2, optimizer="adamw"),
            LayerWork(size=1, layer=0),
        ):
            with load.like(work):
                before = busy_ticks(process)
                deadline_s = time.monotonic() + 20
                while busy_ticks(process) < before + 3:
                    assert time.monotonic() < deadline_s
                    time.sleep(0.02)
    assert not new_processes()


@pytest.mark.timeout(120)
def test_what_goes_wrong_in_another_process_is_told_in_a_line(
    llama_folder, new_processes
):
    with Load(2, loaded(llama_folder)) as load:
        failed = pytest.raises(ModelError, match=r"failed with IndexError: .*fewer")
        with failed, load.like(LayerWork(1, 99)):
            pass
    assert not new_processes()


def test_alone_there_is_nobody_else(llama_folder, new_processes):
    with Load(1, loaded(llama_folder)) as load, load.like(LayerWork(1, 99)):
        assert not new_processes()
