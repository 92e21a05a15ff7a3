"""Times on a device, told by a clock that the tests turn."""

import itertools
import time

import pytest
import torch
from layer_runs import CONFIGS, model_run, module_run
from torch import nn

from planner.chain.source import DTYPES
from planner.measure import sampling, timed
from planner.measure.layer_run import LayerRun, chained
from planner.measure.timed import (
    LayerTimes,
    time_around,
    time_layer,
    time_optimizer,
)
from planner.optimizers import optimizers_for

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
    """Hands a tensor on; F and B of it take what they are told."""

    @staticmethod
    def forward(ctx, tensor, clock, forward_s, backward_s):
        ctx.clock, ctx.backward_s = clock, backward_s
        clock.now_s += forward_s()
        return tensor.clone()

    @staticmethod
    def backward(ctx, grad):
        ctx.clock.now_s += ctx.backward_s
        return grad, None, None, None


def slow_run(clock, *, forward_s, input_grad_s=0.0, weight_grad_s=0.0):
    """A layer that adds a weight to its input."""
    weight = nn.Parameter(torch.zeros(4))

    def forward(hidden):
        hidden = _Slow.apply(hidden, clock, forward_s, input_grad_s)
        return hidden + _Slow.apply(weight, clock, lambda: 0.0, weight_grad_s)

    return LayerRun(
        forward=forward, leaf=torch.zeros(4).requires_grad_(), parameters=(weight,)
    )


def test_f_b_i_and_w_are_told_apart(clock):
    run = slow_run(clock, forward_s=lambda: 1.0, input_grad_s=0.5, weight_grad_s=1.5)
    times = time_layer(run, CPU)
    assert times == LayerTimes(
        forward_s=1.0, backward_s=2.0, input_grad_s=0.5, weight_grad_s=1.5
    )
    assert run.leaf.grad is None
    assert run.parameters[0].grad is None


def test_a_layer_without_input_has_no_i_and_w_is_all_of_b(clock):
    run = slow_run(clock, forward_s=lambda: 1.0, weight_grad_s=1.5)
    (weight,) = run.parameters
    first = LayerRun(
        forward=lambda _: _Slow.apply(weight, clock, lambda: 1.0, 1.5),
        leaf=None,
        parameters=(weight,),
    )
    times = time_layer(first, CPU)
    assert (times.input_grad_s, times.weight_grad_s) == (0.0, times.backward_s)
    assert times.backward_s == 1.5


def test_recompute_costs_what_it_adds_to_b(clock):
    times = {"forward_s": lambda: 1.0, "input_grad_s": 0.5, "weight_grad_s": 1.5}
    run = slow_run(clock, **times)
    again = slow_run(clock, **{**times, "input_grad_s": 1.75})
    assert time_layer(run, CPU, again=again).recompute_s == 1.25
    assert time_layer(again, CPU, again=run).recompute_s == 0.0, "never below 0"


def test_copies_run_one_after_the_other_and_times_are_of_one(clock):
    order = []

    def noting(name):
        def seconds():
            order.append(name)
            return 1.0

        return seconds

    copies = [
        slow_run(clock, forward_s=noting(x), input_grad_s=0.5, weight_grad_s=1.5)
        for x in "abc"
    ]
    row = chained(copies)
    times = time_layer(row, CPU, again=row, num_copies=3)
    assert times == LayerTimes(
        forward_s=1.0, backward_s=2.0, input_grad_s=0.5, weight_grad_s=1.5
    )
    assert "".join(order) == "abc" * (len(order) // 3)
    assert all(copy.parameters[0].grad is None for copy in copies)


def test_the_spread_of_f_and_b_is_told(clock):
    slow = itertools.cycle([1.0, 1.0, 2.0, 2.0])
    run = slow_run(clock, forward_s=lambda: next(slow), input_grad_s=0.5)
    times = time_layer(run, CPU)
    assert 0.5 <= times.forward_spread <= 1.0
    assert times.backward_spread == pytest.approx(0.0)


def test_i_and_w_together_make_the_gradients_of_b(monkeypatch):
    run = module_run(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4)), (3, 4))
    monkeypatch.setattr(timed, "_grad_like", torch.ones_like)
    watch = timed.Stopwatch(CPU)
    watch.begin_step()
    timed._backward(run, watch, forward="F", backward="B")
    whole = [p.grad.clone() for p in run.parameters], run.leaf.grad.clone()
    run.drop_gradients()
    timed._split_backward(run, watch)
    split = [p.grad for p in run.parameters], run.leaf.grad
    assert all(map(torch.allclose, whole[0], split[0]))
    assert torch.allclose(whole[1], split[1])


def test_gradients_are_no_constants_and_that_of_a_loss_is_1():
    assert timed._grad_like(torch.zeros(50)).unique().numel() > 40
    assert timed._grad_like(torch.tensor(3.0)) == 1.0


@pytest.mark.parametrize("kind", ["embedding", "block", "head"])
@pytest.mark.parametrize("name", CONFIGS)
def test_every_layer_of_a_model_can_be_timed(monkeypatch, name, kind):
    monkeypatch.setattr(sampling, "_BUDGET_S", 0.0)
    again = kind == "block" and model_run(CONFIGS[name], kind, recompute=True)
    times = time_layer(model_run(CONFIGS[name], kind), CPU, again=again or None)
    assert times.forward_s > 0
    assert times.weight_grad_s > 0
    assert (times.input_grad_s > 0) == (kind != "embedding")


def test_what_surrounds_a_layer_is_the_stage_less_the_layer(clock):
    whole = slow_run(clock, forward_s=lambda: 1.25)
    run = slow_run(clock, forward_s=lambda: 1.0)
    assert time_around(whole, run, CPU) == 0.25
    assert time_around(run, whole, CPU) == 0.0


def test_what_surrounds_the_layers_is_taken_off_but_no_time_is_below_0():
    times = LayerTimes(
        forward_s=3.0, backward_s=2.0, input_grad_s=1.5, weight_grad_s=0.5
    )
    assert times.without_forward_overhead(1.0).forward_s == 2.0
    assert times.without_forward_overhead(1.0).backward_s == 2.0
    assert times.without_forward_overhead(5.0).forward_s == 0.0


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(x, dtype) for dtype in ("float32", "bfloat16") for x in optimizers_for(dtype)],
)
def test_the_end_of_a_step_is_timed_per_parameter_and_changes_none(
    clock, monkeypatch, name, dtype
):
    stepped = []

    class Slow(timed.StageOptimizer):
        def __init__(self, name, given, **options):
            super().__init__(name, given, **options)
            self.given = given

        def step(self, lr):
            stepped.extend(p.grad.norm() for p in self.given)
            super().step(lr)
            clock.now_s += 7.2

    monkeypatch.setattr(timed, "StageOptimizer", Slow)
    parameters = list(nn.Linear(8, 8, dtype=DTYPES[dtype]).parameters())
    before = [p.detach().clone() for p in parameters]
    assert time_optimizer(name, parameters, CPU) == pytest.approx(7.2 / 72)
    assert all(map(torch.equal, before, parameters))
    # Half the norm was left by clipping, of gradients that are drawn every time.
    assert len(set(stepped)) > 2
    norms = [
        (a**2 + b**2) ** 0.5 for a, b in zip(stepped[::2], stepped[1::2], strict=True)
    ]
    assert all(2 < norm < 6 for norm in norms)


def test_a_layer_whose_output_is_a_view_has_i_and_w(monkeypatch):
    monkeypatch.setattr(sampling, "_BUDGET_S", 0.0)
    module = nn.Sequential(nn.Linear(4, 4), nn.Flatten())
    times = time_layer(module_run(module, (2, 3, 4)), CPU)
    assert times.input_grad_s > 0
    assert times.weight_grad_s > 0
