"""A few processes that stay: each has imported torch once and runs many jobs."""

import multiprocessing
import tempfile
import traceback
from pathlib import Path

TIMEOUT_S = 240


def _serve(rank, connection):
    import torch
    import torch.distributed as dist

    from planner.chain.source import quiet_transformers

    torch.set_num_threads(1)
    while (task := connection.recv()) is not None:
        store, world_size, function, argument = task
        try:
            dist.init_process_group(
                "gloo", init_method=f"file://{store}", rank=rank, world_size=world_size
            )
            with quiet_transformers():
                found = function(argument, rank)
            dist.destroy_process_group()
            connection.send((found, None))
        except Exception:
            if dist.is_initialized():  # or every case after this one fails, too
                dist.destroy_process_group()
            connection.send((None, traceback.format_exc()))


def _train(job_path, _):
    import torch

    from planner.runtime.job import load_job
    from planner.runtime.trainer import train_device

    job = load_job(job_path)
    device = torch.device("cpu")
    train_device(job, job.sequences(), device, evaluation=job.evaluation())


class Processes:
    """`size` processes, rank 0 first."""

    def __init__(self, size):
        context = multiprocessing.get_context("spawn")
        pairs = [context.Pipe() for _ in range(size)]
        self._connections = [here for here, _ in pairs]
        self._processes = [
            context.Process(target=_serve, args=(rank, there), daemon=True)
            for rank, (_, there) in enumerate(pairs)
        ]
        for process in self._processes:
            process.start()

    def call(self, function, argument, num_devices):
        """`function(argument, rank)` on the first processes, as one group.

        Returns what it returned, rank by rank.
        """
        with tempfile.TemporaryDirectory() as folder:
            task = (str(Path(folder) / "store"), num_devices, function, argument)
            for connection in self._connections[:num_devices]:
                connection.send(task)
            results = []
            for rank, connection in enumerate(self._connections[:num_devices]):
                assert connection.poll(TIMEOUT_S), f"process {rank} hangs"
                found, error = connection.recv()
                assert error is None, f"process {rank}:\n{error}"
                results.append(found)
            return results

    def train(self, job_path, num_devices):
        """Run one job on the first `num_devices` processes."""
        self.call(_train, job_path, num_devices)

    def close(self):
        for connection, process in zip(self._connections, self._processes, strict=True):
            if process.is_alive():
                connection.send(None)
            process.join(10)
            if process.is_alive():
                process.kill()
