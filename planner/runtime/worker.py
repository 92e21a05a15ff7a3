"""One process of a run: it drives one device and trains the stages of it.

Started by `launch` with the job's file as its argument, or by somebody else, see
`joining`.
"""

import ctypes
import os
import signal
import sys
import traceback
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

from planner.chain.source import quiet_transformers
from planner.measure.host_memory import keep_freed_memory
from planner.plan import Plan
from planner.runtime.data import Sequences
from planner.runtime.failures import Failure, save_failure
from planner.runtime.job import Job, load_job
from planner.runtime.own_card import card_number
from planner.runtime.own_rows import OwnRows
from planner.runtime.stopping import StopWish
from planner.runtime.trainer import train_device

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(job_path: Path) -> None:
    """Join the other processes, train, and leave a failure in the job.

    Args:
        job_path: The file of the job.
    """
    _end_with_parent()
    # The one who started this process says that it was interrupted.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    job = load_job(job_path)
    rank = int(os.environ["RANK"])
    try:
        wish = StopWish(Path(job.work_dir))
        wish.outlive_shared_signal()
        _train_in_group(job, job.sequences(), rank, None, wish, job.evaluation())
    except Exception as error:
        save_failure(_failure(error, job, rank), Path(job.work_dir))
        traceback.print_exc(file=(Path(job.work_dir) / f"rank-{rank}.log").open("w"))
        # Other threads may hang in communication with processes that are gone.
        os._exit(1)


def join(
    job: Job,
    sequences: Sequences | OwnRows,
    evaluation: Sequences | None,
    store: Store,
) -> None:
    """Train one device in a process that nobody of ours watches.

    A failure is said on stderr, unless it only tells that another process failed,
    and ends this process; so does a run that was asked to stop and saved.

    Args:
        job: The run.
        sequences: The job's data.
        evaluation: What the model is evaluated on, if anything.
        store: Where the processes meet.
    """
    rank = int(os.environ["RANK"])
    wish = StopWish()
    wish.remember_signals()
    try:
        _train_in_group(job, sequences, rank, store, wish, evaluation)
    except Exception as error:
        failure = _failure(error, job, rank)
        if not failure.is_echo:
            sys.stderr.write(f"error: {failure.sentence}\n")
            sys.stderr.flush()
        os._exit(1)


def _end_with_parent() -> None:
    """Be killed when the process that started this one is: Linux's own means."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _failure(error: Exception, job: Job, rank: int) -> Failure:
    own = job.plan.stages_of_device(rank % job.plan.num_devices)
    return Failure.of(error, rank, own)


def _train_in_group(
    job: Job,
    sequences: Sequences | OwnRows,
    rank: int,
    store: Store | None,
    wish: StopWish,
    evaluation: Sequences | None,
) -> None:
    device = _open_device(job.plan)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=job.plan.num_processes
    )
    with quiet_transformers():
        train_device(job, sequences, device, wish, evaluation)
    dist.destroy_process_group()


def _open_device(plan: Plan) -> torch.device:
    if plan.device_type == "cpu":
        torch.set_num_threads(1)
        keep_freed_memory()
        return torch.device("cpu")
    number = int(os.environ["LOCAL_RANK"])
    if os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]:
        found = [
            torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())
        ]
        number = card_number(plan, number, found)
    device = torch.device("cuda", number)
    torch.cuda.set_device(device)
    torch.cuda.init()  # type: ignore[no-untyped-call]  # a device mesh leaves only a device alone that is in use
    return device


if __name__ == "__main__":
    main(Path(sys.argv[1]))
