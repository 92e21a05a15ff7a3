"""Times on a device, told by a clock that the tests turn."""

import time

import pytest
import torch

from planner.measure import timed
from planner.measure.layer_run import LayerRun
from planner.measure.timed import (
    LayerTimes,
    time_forward,
    time_layer,
    time_optimizer,
)

CPU = torch.device("cpu")


class Clock:
    """Stands still unless someone works."""

    def __init__(self):
        self.now_s = 0.0

    def perf_counter(self):
        return self.now_s


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock.perf_counter)
    return clock


class _Slow(torch.autograd.Function):
    """Adds two tensors; F, I and W take what they are told."""

    @staticmethod
    def forward(ctx, hidden, weight, clock, times):
        ctx.clock, ctx.times = clock, times
        clock.now_s += times["F"]()
        return hidden + weight

    @staticmethod
    def backward(ctx, grad):
        for kind, needed in zip("IW", ctx.needs_input_grad, strict=False):
            ctx.clock.now_s += ctx.times[kind]() if needed else 0.0
        return grad, grad, None, None


def slow_run(clock, *, forward, input_grad, weight_grad):
    weight = torch.nn.Parameter(torch.zeros(4))
    times = {"F": forward, "I": input_grad, "W": weight_grad}
    return LayerRun(
        forward=lambda hidden: _Slow.apply(hidden, weight, clock, times),
        leaf=torch.zeros(4).requires_grad_(),
        parameters=(weight,),
    )


def test_forward_and_backward_are_told_apart(clock):
    run = slow_run(
        clock, forward=lambda: 1.0, input_grad=lambda: 0.5, weight_grad=lambda: 1.5
    )
    times = time_layer(run, CPU)
    assert times.forward_s == pytest.approx(1.0)
    assert times.backward_s == pytest.approx(2.0)
    assert times.input_grad_s + times.weight_grad_s == times.backward_s
    assert run.leaf.grad is None
    assert run.parameters[0].grad is None


def test_warm_up_and_a_slow_call_do_not_count(clock):
    calls = iter([9.0, 9.0, 1.0, 1.0, 7.0, 1.0, 1.0])
    run = slow_run(
        clock,
        forward=lambda: next(calls),
        input_grad=lambda: 0.0,
        weight_grad=lambda: 0.0,
    )
    assert time_forward(run, CPU) == pytest.approx(1.0)
    assert next(calls, None) is None


def test_a_slow_layer_is_not_run_more_often_than_needed(clock):
    calls = []
    run = slow_run(
        clock,
        forward=lambda: calls.append(1) or 10.0,
        input_grad=lambda: 0.0,
        weight_grad=lambda: 0.0,
    )
    time_layer(run, CPU)
    assert len(calls) == timed._NUM_WARMUP_CALLS + timed._MIN_CALLS + 3


def test_a_fast_layer_is_run_often(clock):
    calls = []
    run = slow_run(
        clock,
        forward=lambda: calls.append(1) or 1e-6,
        input_grad=lambda: 0.0,
        weight_grad=lambda: 0.0,
    )
    time_layer(run, CPU)
    assert len(calls) == timed._NUM_WARMUP_CALLS + timed._MAX_CALLS + 3


def test_what_surrounds_the_layers_is_taken_off_but_no_time_is_below_0():
    times = LayerTimes(
        forward_s=3.0, backward_s=2.0, input_grad_s=1.5, weight_grad_s=0.5
    )
    assert times.without_forward_overhead(1.0).forward_s == 2.0
    assert times.without_forward_overhead(1.0).backward_s == 2.0
    assert times.without_forward_overhead(5.0).forward_s == 0.0


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_an_optimizer_step_is_timed_per_parameter_and_changes_none(clock, name):
    linear = torch.nn.Linear(8, 8, dtype=torch.bfloat16)
    before = [p.detach().clone() for p in linear.parameters()]
    parameters = tuple(linear.parameters())
    run = LayerRun(forward=linear, leaf=None, parameters=parameters)
    kind = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[name]

    def step(optimizer):
        clock.now_s += 7.2

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "step", step)
        assert time_optimizer(name, run, CPU) == pytest.approx(7.2 / 72)
    assert time_optimizer(name, run, CPU) >= 0
    assert all(map(torch.equal, before, linear.parameters()))
