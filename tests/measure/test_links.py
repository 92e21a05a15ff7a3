"""Links are measured by real processes, and what goes wrong there is named."""

import gc
import os
import subprocess
import sys
import time
from itertools import permutations
from pathlib import Path

import pytest
import torch

from planner import artifact
from planner.errors import LinkError, WishError
from planner.measure import link_processes, measure_links
from planner.measure.link_processes import child_environment, next_step
from planner.measure.links import check_arrivals
from planner.model_profile import ProfiledCluster
from planner.units import KIB

FAULTY = Path(__file__).with_name("faulty_link_worker.py")
WORKER = Path(link_processes.__file__).with_name("link_worker.py")


def num_sockets():
    gc.collect()
    found = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found += os.readlink(entry).startswith(("socket:", "pipe:"))
        except FileNotFoundError:
            continue  # what listed the folder
    return found


def children(pid=None):
    """Processes of a process, as numbers."""
    pid = pid or os.getpid()
    found = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        found |= set(map(int, (task / "children").read_text().split()))
    return found


@pytest.fixture
def leaves_nothing(tmp_path, monkeypatch):
    """Fails if processes, sockets, pipes or files of a test stay behind."""
    aside = tmp_path / "aside"
    aside.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(aside))
    before = children(), num_sockets()
    yield
    assert (children(), num_sockets()) == before
    assert not list(aside.iterdir())


@pytest.fixture
def fault(monkeypatch):
    """Makes the processes faulty."""

    def choose(name):
        monkeypatch.setattr(link_processes, "_WORKER", FAULTY)
        monkeypatch.setenv("WORKER", str(WORKER))
        monkeypatch.setenv("FAULT", name)

    return choose


@pytest.fixture(scope="module")
def measured():
    return measure_links("cpu", num_processes=3, timeout_s=100, num_bytes=256 * KIB)


def test_every_ordered_pair_is_measured_once(measured):
    pairs = [(link.source, link.target) for link in measured.links]
    assert pairs == sorted(permutations(range(3), 2))
    assert measured.devices == ("cpu",) * 3
    assert measured.backend == "gloo"


def test_every_link_has_a_time_and_two_rates(measured):
    for link in measured.links:
        assert 0 < link.latency_s < 1
        assert link.bandwidth > 0
        assert link.duplex_bandwidth > 0


def test_what_was_measured_is_part_of_an_artifact(measured):
    text = artifact.to_json(measured)
    assert artifact.from_json(text, ProfiledCluster, source="test") == measured


@pytest.mark.usefixtures("leaves_nothing")
def test_a_measurement_leaves_nothing_behind():
    said = []
    measure_links(
        "cpu", num_processes=2, timeout_s=100, num_bytes=KIB, progress=said.append
    )
    assert said[1:] == ["measuring the link of devices 0 and 1"]


@pytest.mark.usefixtures("leaves_nothing")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "zeros",
            "what device 0 (cpu) sends does not reach device 1 (cpu) as it was sent: "
            "64.0 KiB arrived as zeros",
        ),
        (
            "flip",
            "what device 1 (cpu) sends does not reach device 0 (cpu) as it was sent: "
            "4 B arrived changed",
        ),
        (
            "die",
            "device 0 (cpu) and device 1 (cpu) cannot exchange tensors: "
            "process 1: killed by SIGKILL",
        ),
        (
            "fail",
            "device 0 (cpu) and device 1 (cpu) cannot exchange tensors: "
            "process 1: ValueError: out of luck",
        ),
        (
            "silent",
            "the processes that measure links cannot start: "
            "process 1: ended with exit code 1: no driver here",
        ),
    ],
)
def test_a_fault_is_named_with_its_devices(fault, name, words):
    fault(name)
    with pytest.raises(LinkError) as caught:
        measure_links("cpu", num_processes=2, timeout_s=100, num_bytes=64 * KIB)
    assert str(caught.value) == words


@pytest.mark.usefixtures("leaves_nothing")
def test_a_pair_that_hangs_is_named_and_all_processes_end(fault):
    fault("hang")
    with pytest.raises(LinkError) as caught:
        measure_links("cpu", num_processes=3, timeout_s=10, num_bytes=KIB)
    assert str(caught.value) == (
        "device 0 (cpu) and device 2 (cpu) did not finish exchanging tensors within "
        "10 s; --link-timeout gives them longer"
    )


@pytest.mark.usefixtures("leaves_nothing")
def test_an_interruption_ends_all_processes():
    def interrupt(text):
        if "measuring" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_links("cpu", num_processes=2, progress=interrupt)


def test_processes_end_when_their_starter_is_killed(tmp_path, fault):
    fault("hang")
    code = (
        "import sys; from pathlib import Path; "
        "from planner.measure import link_processes, measure_links; "
        f"link_processes._WORKER = Path({str(FAULTY)!r}); "
        "measure_links('cpu', num_processes=3, num_bytes=1024, "
        "timeout_s=300, progress=lambda text: print(text, flush=True))"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    )
    try:
        for line in starter.stdout:
            if "0 and 2" in line:
                break
        workers = children(starter.pid)
        assert len(workers) == 3
    finally:
        starter.kill()
        starter.wait(30)
        starter.stdout.close()
    end_s = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in workers):
        assert time.monotonic() < end_s, "a process stays behind"
        time.sleep(0.1)


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_processes_are_refused(count):
    with pytest.raises(WishError, match=f"--num-processes {count}: a link joins two"):
        measure_links("cpu", num_processes=count)


def test_more_cards_than_there_are_are_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(WishError, match=r"--num-processes 3: .* torch can use 2 here"):
        measure_links("cuda", num_processes=3)


def test_a_single_card_has_no_link(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(WishError, match="torch can use 1 here; leave out --links"):
        measure_links("cuda")


def test_processes_count_cards_as_nvidia_smi_does_unless_told_otherwise(monkeypatch):
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    monkeypatch.setenv("NCCL_P2P_DISABLE", "0")
    assert child_environment()["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert child_environment()["NCCL_P2P_DISABLE"] == "0"
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    assert child_environment()["CUDA_DEVICE_ORDER"] == "FASTEST_FIRST"


def test_the_next_step_is_one_that_was_not_taken(monkeypatch):
    monkeypatch.delenv("NCCL_P2P_DISABLE", raising=False)
    assert "try again with NCCL_P2P_DISABLE=1" in next_step("nccl")
    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    assert "is set already" in next_step("nccl")
    assert next_step("gloo") == ""


def test_cards_that_deliver_zeros_are_told_to_do_without_peer_to_peer(monkeypatch):
    monkeypatch.delenv("NCCL_P2P_DISABLE", raising=False)
    good, bad = (
        {"wrong_bytes": 0, "zeros": False},
        {"wrong_bytes": 4096, "zeros": True},
    )
    names = ["RTX 4090", "RTX 4090", "RTX 4090"]
    check_arrivals(names, (0, 2), (good, good), "nccl")
    with pytest.raises(LinkError) as caught:
        check_arrivals(names, (0, 2), (good, bad), "nccl")
    assert str(caught.value) == (
        "what device 0 (RTX 4090) sends does not reach device 2 (RTX 4090) as it was "
        "sent: 4.00 KiB arrived as zeros; "
        "try again with NCCL_P2P_DISABLE=1 in the environment"
    )


@pytest.mark.gpu
@pytest.mark.usefixtures("leaves_nothing")
def test_cards_are_measured_over_nccl():
    if torch.cuda.device_count() < 2:
        with pytest.raises(WishError, match="torch can use 1 here"):
            measure_links("cuda")
        return
    found = measure_links("cuda")
    count = torch.cuda.device_count()
    assert found.backend == "nccl"
    assert len(found.devices) == count
    assert len(found.links) == count * (count - 1)
    for link in found.links:
        # No wire between cards is slower than PCIe 1 x1 or quicker than NVLink 6.
        assert 0.2e9 < link.bandwidth < 2e12
        assert 0.1e9 < link.duplex_bandwidth < 2e12
        assert 1e-6 < link.latency_s < 1e-2
