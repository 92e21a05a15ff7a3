"""Start one process per device and wait for all of them.

Processes are PyTorch's elastic ones. Under a foreign torchrun (several machines,
Slurm) this process is itself one of them and joins instead, see `joining`.
"""

import contextlib
import logging
import os
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from torch.distributed.elastic.multiprocessing import (
    DefaultLogsSpecs,
    SignalException,
)
from torch.distributed.elastic.multiprocessing.errors import (
    ChildFailedError,
    ProcessFailure,
)
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from planner.chain.source import quiet_transformers
from planner.errors import RunError, StoppedError
from planner.plan import Plan
from planner.run_record import RunRecord, check_run_dir, load_run, make_run_dir
from planner.runtime.checkpoint_folder import complete_checkpoints, how_to_go_on
from planner.runtime.failures import describe_stages, first_failure
from planner.runtime.job import prepare_job
from planner.runtime.joining import join
from planner.runtime.options import RunOptions
from planner.runtime.stopping import passing_signals_on, stop_signal

# As if by SIGTERM, which is what torchrun and Slurm send.
_STOPPED = 128 + signal.SIGTERM


def run_plan(
    plan: Plan, options: RunOptions, *, say: Callable[[str], None] = lambda line: None
) -> RunRecord:
    """Train as a plan says; returns when all is saved.

    Args:
        plan: The plan.
        options: What the user chose besides.
        say: Takes a line that the user should see.

    Returns:
        The record of the run, as in `run.json`.

    Raises:
        ArtifactError: The plan does not fit the model, or the output directory
            holds another run.
        DataError: The data cannot be used.
        ModelError: The model cannot be found or loaded, or does not train the same
            when it is cut.
        RunError: A stage failed; the first real error with stage and layers. Or
            this machine has too few cards.
        StoppedError: The user asked it to stop; it saved first.
    """
    with _child_environment(plan):
        if options.joins:
            join(plan, options, say)
        else:
            _start(plan, options, say)
    record = load_run(options.output_dir)
    if record.status == "stopped":
        if not options.leads:
            sys.exit(_STOPPED)
        msg = f"stopped, {how_to_go_on(options.output_dir, plan)}"
        raise StoppedError(msg, _STOPPED)
    return record


def _start(plan: Plan, options: RunOptions, say: Callable[[str], None]) -> None:
    check_run_dir(options.output_dir, resumed=options.resume is not None)
    work_dir = Path(tempfile.mkdtemp(prefix="planner-run-"))
    try:
        with quiet_transformers():
            job_path = prepare_job(plan, options, work_dir, say).save()
        make_run_dir(options.output_dir)
        with passing_signals_on(work_dir):
            _launch(plan, job_path, work_dir, options.output_dir)
        _tell_stop(plan, options.output_dir, work_dir)
    finally:
        shutil.rmtree(work_dir, ignore_errors=True)


def _tell_stop(plan: Plan, run_dir: Path, work_dir: Path) -> None:
    asked = stop_signal(work_dir)
    if asked is None or load_run(run_dir).status == "finished":
        return
    msg = f"stopped by {asked.name}, {how_to_go_on(run_dir, plan)}"
    raise StoppedError(msg, exit_code=128 + asked)


def _launch(plan: Plan, job_path: Path, work_dir: Path, run_dir: Path) -> None:
    _silence_elastic()
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=plan.num_processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
        monitor_interval=0.1,
        shutdown_timeout=10,
        # The others are handled here: a run that is asked to stop saves first.
        signals_to_handle="SIGHUP,SIGQUIT",
        # Its own choice of a folder would stay behind.
        logs_specs=DefaultLogsSpecs(log_dir=str(work_dir / "elastic")),
    )
    command = ("-u", "-m", "planner.runtime.worker", str(job_path))
    try:
        elastic_launch(config, sys.executable)(*command)
    except ChildFailedError as error:
        why = _why(plan, work_dir, error)
        if complete_checkpoints(run_dir):
            why = f"{why}; {how_to_go_on(run_dir, plan)}"
        raise RunError(why) from error
    except SignalException as error:
        if error.sigval == signal.SIGINT:
            raise KeyboardInterrupt from error
        msg = f"stopped by {error.sigval.name}"
        raise RunError(msg) from error


def _silence_elastic() -> None:
    """What torch logs of its processes is said better by `_why`."""
    for name in list(logging.root.manager.loggerDict):
        # Each of these loggers has a level of its own.
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _why(plan: Plan, work_dir: Path, error: ChildFailedError) -> str:
    """One sentence: which stage failed, with which layers, and how."""
    found = first_failure(work_dir)
    if found is not None and not found.is_echo:
        return found.sentence
    rank, failure = min(error.failures.items(), key=lambda item: _blame(item[1]))
    stages = plan.stages_of_device(rank % plan.num_devices)
    how = f"ended with exit code {failure.exitcode}"
    if failure.exitcode < 0:
        name = signal.Signals(-failure.exitcode).name
        how = f"{'were' if len(stages) > 1 else 'was'} killed by {name}"
        if failure.exitcode == -signal.SIGKILL:
            how += " (is this machine out of memory?)"
    return f"{describe_stages(stages)} {how}"


def _blame(failure: ProcessFailure) -> tuple[bool, bool, int]:
    """Sorts the process that failed by itself before those that followed it.

    These lose their connection and exit, or are ended by torch with SIGTERM.
    """
    exitcode = failure.exitcode
    return exitcode >= 0, exitcode == -signal.SIGTERM, failure.timestamp


@contextlib.contextmanager
def _child_environment(plan: Plan) -> Iterator[None]:
    """What the processes are told; the user's own settings win."""
    settings = {
        # nvidia-smi's order, so that names and positions agree.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "OMP_NUM_THREADS": "1" if plan.device_type == "cpu" else "4",
        "TOKENIZERS_PARALLELISM": "false",
    }
    added = {key: value for key, value in settings.items() if key not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for key in added:
            del os.environ[key]
