"""The schedule of a plan, run by PyTorch's own engine.

`_PipelineScheduleRuntime` executes any order of actions that it is handed. It is
private to torch, so it is touched nowhere else, and only in versions that this
module was tested with.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.distributed.pipelining import PipelineStage, schedules

from planner.chain.stage_module import StageModule
from planner.measure.stopwatch import Stopwatch
from planner.plan import SchedulePlan
from planner.schedule.actions import parse_actions

TESTED_TORCH = ("2.13",)


class _TimedStage(PipelineStage):
    """PyTorch's stage, with its actions noted on a stopwatch."""

    stopwatch: Stopwatch

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        forward = super().forward_one_chunk
        return self.stopwatch.run(
            f"{self.stage_index}F{fwd_chunk_id}",
            lambda: forward(fwd_chunk_id, *args, **kwargs),
        )

    def backward_one_chunk(
        self,
        bwd_chunk_id: int,
        loss: Any = None,
        full_backward: bool = True,
        last_backward: bool = False,
    ) -> Any:
        backward = super().backward_one_chunk
        kind = "B" if full_backward else "I"
        result = self.stopwatch.run(
            f"{self.stage_index}{kind}{bwd_chunk_id}",
            lambda: backward(bwd_chunk_id, loss, full_backward, last_backward),
        )
        # Only contiguous memory can be sent.
        self.bwd_cache[bwd_chunk_id] = tuple(
            grad if grad is None else grad.contiguous()
            for grad in self.bwd_cache[bwd_chunk_id]
        )
        return result

    def backward_weight_one_chunk(
        self, bwd_chunk_id: int, *args: Any, **kwargs: Any
    ) -> Any:
        backward = super().backward_weight_one_chunk
        return self.stopwatch.run(
            f"{self.stage_index}W{bwd_chunk_id}",
            lambda: backward(bwd_chunk_id, *args, **kwargs),
        )


class Engine:
    """One stage of a plan, ready to run steps.

    Args:
        module: The stage's layers.
        index: Stage number.
        num_stages: How many stages there are.
        schedule: The order of actions on every device.
        received: Meta tensors like what one microbatch gets from the stage
            before, the hidden state first; empty for the first stage.
        sent: Meta tensors like what it hands to the next stage; empty for the
            last one.
        device: Where the stage computes.
    """

    def __init__(
        self,
        module: StageModule,
        *,
        index: int,
        num_stages: int,
        schedule: SchedulePlan,
        received: Sequence[torch.Tensor],
        sent: Sequence[torch.Tensor],
        device: torch.device,
    ):
        _check_torch_version()
        self.stopwatch = Stopwatch(device)
        self._num_target_tokens = 1
        self._is_last = index == num_stages - 1
        loss = torch.empty((), device="meta", requires_grad=True)
        stage = _TimedStage(
            module,
            index,
            num_stages,
            device,
            # Static shapes: a dry run would take memory of its own.
            input_args=tuple(received),
            output_args=(loss,) if self._is_last else tuple(sent),
        )
        stage.stopwatch = self.stopwatch
        self._schedule = schedules._PipelineScheduleRuntime(  # type: ignore[no-untyped-call]
            [stage],
            schedule.num_microbatches,
            loss_fn=self._scaled,
            # The loss is divided by the tokens of the whole step instead; the
            # default would rescale gradients that are there already.
            scale_grads=False,
        )
        self._schedule._prepare_schedule_with_comms(_torch_actions(schedule))

    def step(self, inputs: dict[str, torch.Tensor], num_target_tokens: int) -> float:
        """Run one step; gradients are left in the parameters.

        Args:
            inputs: Keyword arguments of `StageModule.forward` for the whole step,
                shape (global_batch_size, ...) each.
            num_target_tokens: Of the whole step.

        Returns:
            The loss, the mean over all target tokens; 0 on all but the last stage.
        """
        self._num_target_tokens = num_target_tokens
        self.stopwatch.begin_step()
        losses: list[torch.Tensor] = []
        run: Callable[..., Any] = self._schedule.step
        if self._is_last:
            # The loss is computed by the stage itself; torch only asks for a target.
            target = next(iter(inputs.values()))
            run(target=target, losses=losses, return_outputs=False, **inputs)
            return float(torch.stack(losses).detach().sum())
        run(return_outputs=False, **inputs)
        return 0.0

    def _scaled(self, summed: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return summed / self._num_target_tokens


def _torch_actions(schedule: SchedulePlan) -> dict[int, list[Any]]:
    kinds = {
        "F": schedules.FORWARD,
        "B": schedules.FULL_BACKWARD,
        "I": schedules.BACKWARD_INPUT,
        "W": schedules.BACKWARD_WEIGHT,
    }
    return {
        device: [schedules._Action(a.stage, kinds[a.kind], a.microbatch) for a in row]
        for device, row in enumerate(parse_actions(schedule.actions))
    }


def _check_torch_version() -> None:
    found = ".".join(torch.__version__.split(".")[:2])
    if found not in TESTED_TORCH:
        msg = (
            f"torch {torch.__version__} is installed, but the schedule runtime was "
            f"tested with {', '.join(TESTED_TORCH)} only"
        )
        raise RuntimeError(msg)
