"""Which device of which copy of the pipeline a process is.

All copies have the same stages and each trains its share of every step's sequences.
Ranks go copy by copy; two copies of three devices:

                  device 0  device 1  device 2
        copy 0      rank 0    rank 1    rank 2
        copy 1      rank 3    rank 4    rank 5

A row is a pipeline. What a column holds is the same in every row, so its gradients
are summed before the optimizer's step, and only the first row saves.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from planner.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a process is among all of a run.

    Attributes:
        device: Row of the plan's schedule.
        copy: Of the pipeline, from 0.
        num_copies: How many there are.
        pipeline: The processes of this copy; None for all there are.
        replicas: Those of this device in every copy; None if there is one copy.
    """

    device: int
    copy: int = 0
    num_copies: int = 1
    pipeline: dist.ProcessGroup | None = None
    replicas: dist.ProcessGroup | None = None

    @property
    def saves(self) -> bool:
        """Whether this process writes what all copies have."""
        return self.copy == 0

    def share(self, rows: torch.Tensor) -> torch.Tensor:
        """The rows of a step that this copy trains on.

        Args:
            rows: Of all copies, shape (global_batch_size, ...).

        Returns:
            A view of them, shape (global_batch_size / num_copies, ...).
        """
        size = len(rows) // self.num_copies
        return rows[self.copy * size : (self.copy + 1) * size]

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Sum the gradients of this device over all copies, in place.

        Args:
            parameters: Each tensor once, in the same order in every copy; one that
                has a gradient in any copy has one in all of them afterwards.
        """
        own = list(parameters)
        if self.replicas is None or not own:
            return
        has = torch.tensor(
            [p.grad is not None for p in own], dtype=torch.uint8, device=own[0].device
        )
        dist.all_reduce(has, op=dist.ReduceOp.MAX, group=self.replicas)
        summing = []
        for parameter, is_used in zip(own, has.tolist(), strict=True):
            if not is_used:
                continue
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            summing.append(
                dist.all_reduce(parameter.grad, group=self.replicas, async_op=True)
            )
        for work in summing:
            work.wait()


def place_of(plan: Plan, device_type: str) -> Place:
    """Find the place of this process; all processes call it together.

    Args:
        plan: The plan.
        device_type: `cpu` or `cuda`.

    Returns:
        Its place.
    """
    copy, device = divmod(dist.get_rank(), plan.num_devices)
    if plan.num_copies == 1:
        return Place(device=device)
    mesh = init_device_mesh(
        device_type,
        (plan.num_copies, plan.num_devices),
        mesh_dim_names=("copy", "device"),
    )
    return Place(
        device=device,
        copy=copy,
        num_copies=plan.num_copies,
        pipeline=mesh.get_group("device"),
        replicas=mesh.get_group("copy"),
    )
