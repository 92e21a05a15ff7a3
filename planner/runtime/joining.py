"""Be one of the processes that somebody else started: torchrun, Slurm.

The first process alone looks at the run directory and prepares the data; the
others wait for it, so none of them can mistake the first one's new files for
those of another run. What it prepares lies beside the run directory, which all
machines must share for the model to be saved, and is gone once all have read it.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from torch.distributed.distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous

from planner.chain.source import quiet_transformers
from planner.errors import PlannerError, WishError
from planner.plan import Plan
from planner.run_record import check_run_dir, make_run_dir
from planner.runtime import worker
from planner.runtime.data import Sequences
from planner.runtime.job import Job, load_job, prepare_job
from planner.runtime.options import RunOptions
from planner.runtime.own_rows import OwnRows

# Tokenising may take hours; if the first process dies, torchrun ends the others.
_PATIENCE = timedelta(days=2)
_POLL_S = 0.05

_JOB, _NUM_READERS = "planner/job", "planner/num_readers"
_FAILED = "failed"

# The job, its data, and what is evaluated.
_Prepared = tuple[Job, Sequences | OwnRows, Sequences | None]


def join(plan: Plan, options: RunOptions, say: Callable[[str], None]) -> None:
    """Train one device of a plan in this process; all processes call it together.

    Args:
        plan: The plan.
        options: What the user chose besides, the same in all processes.
        say: Takes a line that the user should see, in the first process.

    Raises:
        PlannerError: The plan, the model, the data or the run directory cannot be
            used; raised in the first process only.
        SystemExit: The same in all others, which have nothing to add.
    """
    store, rank, world_size = next(rendezvous("env://", timeout=_PATIENCE))
    if rank == 0:
        try:
            check_world_size(plan, world_size)
            prepared = _prepare(plan, options, store, world_size, say)
        except PlannerError:
            store.set(_JOB, _FAILED)
            raise
    else:
        prepared = _read(store)
    worker.join(*prepared, store)


def check_world_size(plan: Plan, world_size: int) -> None:
    """Make sure that there is one process per device.

    Args:
        plan: The plan.
        world_size: Number of processes.

    Raises:
        WishError: There are more processes than devices, or fewer.
    """
    if world_size != plan.num_processes:
        count = plan.num_processes
        devices = "1 device" if count == 1 else f"{count} devices"
        msg = (
            f"torchrun started {world_size} processes, but the plan is for "
            f"{devices}; start as many, or run without torchrun"
        )
        raise WishError(msg)


def _prepare(
    plan: Plan,
    options: RunOptions,
    store: Store,
    world_size: int,
    say: Callable[[str], None],
) -> _Prepared:
    check_run_dir(options.output_dir, resumed=options.resume is not None)
    beside = options.output_dir.absolute().parent
    beside.mkdir(parents=True, exist_ok=True)
    work_dir = Path(tempfile.mkdtemp(prefix=f".{options.output_dir.name}.", dir=beside))
    try:
        with quiet_transformers():
            job = prepare_job(plan, options, work_dir, say)
        make_run_dir(options.output_dir)
        store.set(_JOB, str(job.save()))
        prepared = job, job.sequences(), job.evaluation()
        while store.add(_NUM_READERS, 0) < world_size - 1:
            time.sleep(_POLL_S)
    finally:
        shutil.rmtree(work_dir, ignore_errors=True)
    return prepared


def _read(store: Store) -> _Prepared:
    path = store.get(_JOB).decode()
    if path == _FAILED:
        sys.exit(1)
    job = load_job(Path(path))
    prepared = job, job.sequences(), job.evaluation()
    store.add(_NUM_READERS, 1)
    return prepared
