"""The schedule of a plan, run by PyTorch's own engine.

`_PipelineScheduleRuntime` executes any order of F, B, I and W that it is handed, with
several stages a device. It is private to torch, so it is touched nowhere else, and
only in versions that were tested, see `torch_version`.

What is mended here, each where it is done:

    memory     stages of one device hand over tensors that stay until the next step,
               and I leaves its input's gradient, its output and that one's gradient
    gradients  a loss is looked up by its place in the order instead of its
               microbatch; only contiguous memory can be sent; a view cannot be detached
    time       I and W look at the weights of the whole model, and W at all of the
               graph below, see `split_backward`
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, schedules

from planner.chain.split_backward import (
    Boundary,
    GraphParts,
    input_backward,
    splittable,
    weight_backward,
)
from planner.chain.stage_module import StageModule
from planner.measure.stopwatch import Stopwatch
from planner.plan import SchedulePlan
from planner.runtime.failures import blamed_on
from planner.runtime.torch_version import check_torch_version
from planner.schedule.actions import parse_actions


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EngineStage:
    """A stage of this device, as the engine needs it.

    Attributes:
        index: Stage number.
        module: Its layers.
        received: Meta tensors like what one microbatch gets from the stage before,
            the hidden state first; empty for the first stage.
        sent: Meta tensors like what it hands to the next stage; empty for the last.
    """

    index: int
    module: StageModule
    received: Sequence[torch.Tensor]
    sent: Sequence[torch.Tensor]


class _Stage(PipelineStage):
    """PyTorch's stage, mended, with its actions noted on a stopwatch."""

    stopwatch: Stopwatch
    is_after_own: bool  # the stage before is on this device, too
    is_before_own: bool
    split: frozenset[int]  # microbatches with I and W
    weights: list[torch.nn.Parameter]
    graph_parts: GraphParts
    boundaries: dict[int, list[Boundary]]  # of those microbatches
    _now: int  # the microbatch of the backward that runs

    def note(self, kind: str, microbatch: int, work: Callable[[], Any]) -> Any:
        with blamed_on(self.stage_index):
            return self.stopwatch.run(f"{self.stage_index}{kind}{microbatch}", work)

    # --- F, B, I, W -----------------------------------------------------------

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        forward = super().forward_one_chunk

        def run() -> Any:
            return forward(fwd_chunk_id, *args, **kwargs)

        has_graph = torch.is_grad_enabled()
        if self.is_first or fwd_chunk_id not in self.split or not has_graph:
            # Nobody needs the gradient of the first stage's input: W does all.
            return self.note("F", fwd_chunk_id, run)
        with self.graph_parts.made() as self.boundaries[fwd_chunk_id]:
            return self.note("F", fwd_chunk_id, run)

    def backward_one_chunk(
        self,
        bwd_chunk_id: int,
        loss: Any = None,
        full_backward: bool = True,
        last_backward: bool = False,
    ) -> Any:
        backward = super().backward_one_chunk
        self._now = bwd_chunk_id
        self.note(
            "B" if full_backward else "I",
            bwd_chunk_id,
            lambda: backward(bwd_chunk_id, loss, full_backward, last_backward),
        )
        self.bwd_cache[bwd_chunk_id] = tuple(
            grad if grad is None else grad.contiguous()
            for grad in self.bwd_cache[bwd_chunk_id]
        )
        if not full_backward and not self.is_first:
            inputs, groups, _, _ = self.backward_state[bwd_chunk_id]
            for value in inputs:
                if isinstance(value, torch.Tensor):
                    value.grad = None
            # W needs neither the output nor its gradient.
            self.backward_state[bwd_chunk_id] = ((), groups, (), None)
        self._drop_local(bwd_chunk_id)

    def backward_weight_one_chunk(
        self, bwd_chunk_id: int, *args: Any, **kwargs: Any
    ) -> Any:
        backward = super().backward_weight_one_chunk
        return self.note(
            "W", bwd_chunk_id, lambda: backward(bwd_chunk_id, *args, **kwargs)
        )

    def forward_maybe_with_nosync(self, *args: Any, **kwargs: Any) -> Any:
        forward: Callable[..., Any] = super().forward_maybe_with_nosync
        output = forward(*args, **kwargs)
        if not self.split or self.is_last or not torch.is_grad_enabled():
            return output
        if isinstance(output, tuple):
            return tuple(map(splittable, output))
        return splittable(output)

    def backward_maybe_with_nosync(
        self,
        backward_type: Any,
        bwd_kwargs: dict[str, Any],
        last_backward: bool = False,
    ) -> Any:
        if backward_type == "input":
            return input_backward(
                bwd_kwargs["stage_output"],
                bwd_kwargs["output_grads"],
                bwd_kwargs["input_values"],
                self.weights,
                self.boundaries.pop(self._now),
            )
        if backward_type == "weight":
            weight_backward(self.weights, bwd_kwargs["param_groups"])
            return (), None
        return super().backward_maybe_with_nosync(
            backward_type, bwd_kwargs, last_backward
        )

    # --- tensors that stages of one device hand over ---------------------------

    def _setup_forward_recv_info(
        self, num_microbatches: int, has_backward: bool
    ) -> None:
        super()._setup_forward_recv_info(num_microbatches, has_backward)
        if self.is_after_own:
            for infos in self.args_recv_info.values():
                _drop(infos)

    def _create_grad_recv_info(self, act_send_info: Any) -> Any:
        infos = super()._create_grad_recv_info(act_send_info)
        if self.is_before_own:
            _drop(infos)
        return infos

    def set_local_bwd_input(
        self, next_stage_bwd_outputs: tuple[torch.Tensor | None, ...], mb_index: int
    ) -> None:
        outputs, _ = self.fwd_cache[mb_index]
        pairs = zip(outputs, next_stage_bwd_outputs, strict=True)
        grads = tuple(
            torch.zeros_like(x) if grad is None and x.requires_grad else grad
            for x, grad in pairs
        )
        super().set_local_bwd_input(grads, mb_index)

    def _drop_local(self, microbatch: int) -> None:
        if self.is_after_own:
            _drop(self.args_recv_info[microbatch])
        if self.is_before_own:
            _drop(self.grad_recv_info[microbatch])

    def forget_forwards(self) -> None:
        """Let go of what F without B left behind."""
        self.clear_runtime_states()
        if self.is_after_own:
            for infos in self.args_recv_info.values():
                _drop(infos)


def _drop(infos: Iterable[Any]) -> None:
    for info in infos:
        info.buffer = None


_FORWARDS = (schedules.FORWARD, schedules.SEND_F, schedules.RECV_F)


class _Schedule(schedules._PipelineScheduleRuntime):
    """PyTorch's runtime, with losses by microbatch."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)  # type: ignore[no-untyped-call]
        self.losses: dict[int, torch.Tensor] = {}

    def _maybe_compute_loss(
        self, stage: Any, output: Any, target_mbs: Any, mb_index: int, *_: Any
    ) -> None:
        if stage.is_last:
            # The loss is computed by the stage itself; there is no target.
            self.losses[mb_index] = self._compute_loss(output, None)  # type: ignore[no-untyped-call]

    def _maybe_get_loss(self, stage: Any, mb_index: int) -> Any:
        return self.losses[mb_index] if stage.is_last else None

    def _update_losses(self, stages: Any, losses: Any) -> None:
        """They stay in `losses`."""

    def forward_only(self, inputs: dict[str, Any]) -> None:
        """Run the F of a step in their order, with the buffers of training.

        torch's own `eval` makes new ones for every change between the two.
        """
        trained = self.pipeline_order_with_comms
        self.pipeline_order_with_comms = {
            device: [a for a in row if a.computation_type in _FORWARDS]
            for device, row in trained.items()
        }
        try:
            args, kwargs = self._split_inputs((), inputs)
            self._step_microbatches(args, kwargs, return_outputs=False)
        finally:
            self.pipeline_order_with_comms = trained


class Engine:
    """The stages of one device, ready to run steps.

    Args:
        stages: Of this device, in order of the model.
        num_stages: How many there are on all devices.
        schedule: The order of actions on every device.
        device: Where the stages compute.
        group: The processes that the rows of the schedule are for; None for all.

    Attributes:
        stopwatch: Holds when the actions of the last step began and ended.

    Raises:
        RunError: This version of torch was not tested.
    """

    def __init__(
        self,
        stages: Sequence[EngineStage],
        *,
        num_stages: int,
        schedule: SchedulePlan,
        device: torch.device,
        group: dist.ProcessGroup | None = None,
    ):
        check_torch_version()
        self.stopwatch = Stopwatch(device)
        self._num_target_tokens = 1
        own = [stage.index for stage in stages]
        actions = [a for row in parse_actions(schedule.actions) for a in row]
        torch_stages = []
        for stage in stages:
            made = _torch_stage(stage, num_stages, device, group)
            made.stopwatch = self.stopwatch
            made.is_after_own = stage.index - 1 in own
            made.is_before_own = stage.index + 1 in own
            made.split = frozenset(
                a.microbatch for a in actions if (a.stage, a.kind) == (stage.index, "I")
            )
            torch_stages.append(made)
        self._schedule = _Schedule(
            torch_stages,
            schedule.num_microbatches,
            loss_fn=self._scaled,
            # The loss is divided by the tokens of the whole step instead; the
            # default would rescale gradients that are there already.
            scale_grads=False,
        )
        self._schedule._prepare_schedule_with_comms(_torch_actions(schedule))
        self._stages = torch_stages

    def step(self, inputs: dict[str, torch.Tensor], num_target_tokens: int) -> float:
        """Run one step; gradients are left in the parameters.

        Args:
            inputs: Keyword arguments of `StageModule.forward` for the whole step,
                shape (num_microbatches * microbatch_size, ...) each.
            num_target_tokens: Of the whole step.

        Returns:
            The loss, the mean over all target tokens; 0 on all devices but that of
            the last stage.
        """
        self._num_target_tokens = num_target_tokens
        self.stopwatch.begin_step()
        run: Callable[..., Any] = self._schedule.step
        run(return_outputs=False, **inputs)
        return self._take_losses()

    def evaluate(self, inputs: dict[str, torch.Tensor]) -> float:
        """Run the forwards of a step, without gradients or dropout.

        Args:
            inputs: As of `step`.

        Returns:
            The loss of all target tokens together; 0 on all devices but that of the
            last stage.
        """
        self._num_target_tokens = 1
        self.stopwatch.begin_step()
        for stage in self._stages:
            stage.submod.eval()
        try:
            with torch.no_grad():
                self._schedule.forward_only(inputs)
        finally:
            for stage in self._stages:
                stage.submod.train()
                stage.forget_forwards()
        return self._take_losses()

    def _take_losses(self) -> float:
        losses = list(self._schedule.losses.values())
        self._schedule.losses.clear()
        return float(torch.stack(losses).detach().sum()) if losses else 0.0

    def _scaled(self, summed: torch.Tensor, _: None) -> torch.Tensor:
        return summed / self._num_target_tokens


def _torch_stage(
    stage: EngineStage,
    num_stages: int,
    device: torch.device,
    group: dist.ProcessGroup | None,
) -> _Stage:
    loss = torch.empty((), device="meta", requires_grad=True)
    made = _Stage(
        stage.module,
        stage.index,
        num_stages,
        device,
        # Static shapes: a dry run would take memory of its own.
        input_args=tuple(stage.received),
        output_args=tuple(stage.sent) or (loss,),
        group=group,
    )
    owned = stage.module.owned_parameters().values()
    made.weights = [p for p in owned if p.requires_grad]
    made.boundaries = {}
    made.graph_parts = stage.module.graph_parts
    return made


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
