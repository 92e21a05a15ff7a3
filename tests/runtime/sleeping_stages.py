"""Stages that only sleep, run by the engine: what a processor does is no matter."""

import time

import torch
import torch.distributed as dist
from torch import nn

from planner.chain.split_backward import GraphParts
from planner.plan import SchedulePlan
from planner.runtime.engine import Engine, EngineStage
from planner.schedule.actions import format_actions
from planner.schedule.named import schedule_actions
from planner.simulate import StageTimes

NUM_STEPS = 2
WIDTH = 2
MS = 1e-3


def unequal_times(num_stages):
    """No two neighbours alike; nobody asks for the gradient of the rows."""
    return [_times_of(stage) for stage in range(num_stages)]


def _times_of(stage):
    input_grad_s = (45 + 10 * (stage % 2)) * MS if stage else 0.0
    weight_grad_s = (50 + 5 * (stage % 3)) * MS
    return StageTimes(
        forward_s=(45 + 10 * (stage % 3)) * MS,
        backward_s=input_grad_s + weight_grad_s,
        input_grad_s=input_grad_s,
        weight_grad_s=weight_grad_s,
    )


class _Sleep(torch.autograd.Function):
    """Hands a tensor on; F and B of it take as long as they are told."""

    @staticmethod
    def forward(ctx, tensor, forward_s, backward_s):
        ctx.backward_s = backward_s
        time.sleep(forward_s)
        return tensor.clone()

    @staticmethod
    def backward(ctx, grad):
        time.sleep(ctx.backward_s)
        return grad, None, None


class Sleeper(nn.Module):
    """Sleeps in F, in the gradient of its input, and in that of its weight."""

    def __init__(self, times, is_last):
        super().__init__()
        self.times, self.is_last = times, is_last
        self.graph_parts = GraphParts()
        self.weight = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, *hidden, rows):
        times = self.times
        made = hidden[0] if hidden else rows
        made = _Sleep.apply(made, times.forward_s, times.input_grad_s)
        made = made + _Sleep.apply(self.weight, 0.0, times.weight_grad_s)
        return made.sum() if self.is_last else made

    def owned_parameters(self):
        return {"weight": self.weight}


def makespans_s(devices):
    """Of every step, from what `sleep_in_order` found on every device."""
    found = []
    for step in range(NUM_STEPS):
        spans = [span for device in devices for span in device[step]]
        begins_s, ends_s = zip(*spans, strict=True)
        found.append(max(ends_s) - min(begins_s))
    return found


def sleep_in_order(task, rank):
    """Steps of one device: begin and end of every action, on the machine's clock."""
    name, num_devices, num_microbatches, times = task
    actions = schedule_actions(name, num_devices, num_microbatches)
    last = len(times) - 1
    engine = Engine(
        [
            EngineStage(
                index=index,
                module=Sleeper(times[index], index == last),
                received=[_like_hidden()] if index > 0 else [],
                sent=[_like_hidden()] if index < last else [],
            )
            for index in sorted({action.stage for action in actions[rank]})
        ],
        num_stages=len(times),
        schedule=SchedulePlan(
            name=name,
            num_microbatches=num_microbatches,
            microbatch_size=1,
            actions=format_actions(actions),
        ),
        device=torch.device("cpu"),
    )
    steps = []
    for _ in range(NUM_STEPS):
        dist.barrier()
        engine.step({"rows": torch.ones(num_microbatches, WIDTH)}, 1)
        steps.append([(x.start_s, x.end_s) for x in engine.stopwatch.spans()])
    return steps


def _like_hidden():
    return torch.empty(1, WIDTH, device="meta", requires_grad=True)
