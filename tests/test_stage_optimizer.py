"""The optimizer of a stage takes torch's own steps, in fp32 at least."""

import copy

import pytest
import torch

from planner.chain.source import DTYPES
from planner.errors import WishError
from planner.measure.live_bytes import LiveBytes
from planner.memory.stage_levels import step_peak_bytes
from planner.model_profile import LayerProfile
from planner.optimizers import optimizer_spec
from planner.stage_optimizer import StageOptimizer, clip, squared_norm

SHAPES = [(6, 4), (4,), (3, 5)]
KINDS = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


def parameters(dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    return [
        torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype))
        for shape in SHAPES
    ]


def gradients(num_steps):
    generator = torch.Generator().manual_seed(2)
    for _ in range(num_steps):
        yield [torch.randn(shape, generator=generator) for shape in SHAPES]


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("name", KINDS)
def test_fp32_steps_are_torchs_own(name, weight_decay):
    ours, theirs = parameters(), parameters()
    optimizer = StageOptimizer(name, ours, weight_decay=weight_decay)
    matrices = [p for p in theirs if p.ndim > 1]
    vectors = [p for p in theirs if p.ndim == 1]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    reference = KINDS[name](groups, lr=1.0)
    for lr, grads in zip([0.1, 0.03, 0.0, 0.05], gradients(4), strict=True):
        for mine, yours, grad in zip(ours, theirs, grads, strict=True):
            mine.grad, yours.grad = grad.clone(), grad.clone()
        optimizer.step(lr)
        for group in reference.param_groups:
            group["lr"] = lr
        reference.step()
        assert all(parameter.grad is None for parameter in ours)
    for mine, yours in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, yours, rtol=1e-5, atol=1e-6)


def test_small_steps_move_a_bfloat16_weight_through_its_master_copy():
    # Neighbours of 1 in bfloat16 are 2^-8 below and 2^-7 above: each step alone
    # rounds away.
    step, num_steps = 1e-3, 20
    plain = torch.ones(1, dtype=torch.bfloat16)
    weight = torch.nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    optimizer = StageOptimizer("sgd", [weight])
    for _ in range(num_steps):
        plain -= step
        weight.grad = torch.ones(1, dtype=torch.bfloat16)
        optimizer.step(step)
    assert plain.item() == 1.0
    assert weight.item() == pytest.approx(1 - num_steps * step, abs=2**-8)
    master = optimizer.states(["w"])["w"]["master"]
    assert master.item() == pytest.approx(1 - num_steps * step, abs=1e-6)


@pytest.mark.parametrize("name", KINDS)
def test_a_bfloat16_weight_is_the_rounded_fp32_one(name):
    coarse = parameters(torch.bfloat16)
    fine = [torch.nn.Parameter(p.detach().float()) for p in coarse]
    optimizers = [StageOptimizer(name, group) for group in (coarse, fine)]
    for grads in gradients(3):
        for mine, yours, grad in zip(coarse, fine, grads, strict=True):
            mine.grad = grad.bfloat16()
            yours.grad = mine.grad.float()
        for optimizer in optimizers:
            optimizer.step(0.1)
    assert all(p.grad is None for p in coarse)
    assert all(torch.equal(a, b.bfloat16()) for a, b in zip(coarse, fine, strict=True))


def test_a_parameter_without_gradient_stays():
    ours = parameters()
    before = [p.detach().clone() for p in ours]
    optimizer = StageOptimizer("adamw", ours, weight_decay=0.5)
    ours[0].grad = torch.ones_like(ours[0])
    optimizer.step(0.1)
    moved = [not torch.equal(a, b) for a, b in zip(before, ours, strict=True)]
    assert moved == [True, False, False]
    assert list(optimizer.states("abc")["b"]) == []


@pytest.mark.parametrize(
    ("name", "dtype", "expected"),
    [
        ("adamw", torch.float32, {"step", "exp_avg", "exp_avg_sq"}),
        ("adamw", torch.bfloat16, {"step", "exp_avg", "exp_avg_sq", "master"}),
        ("sgd", torch.float32, set()),
        ("sgd", torch.bfloat16, {"master"}),
    ],
)
def test_states_are_what_a_checkpoint_must_keep(name, dtype, expected):
    ours = parameters(dtype)
    optimizer = StageOptimizer(name, ours)
    for parameter in ours:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step(0.1)
    states = optimizer.states(["a", "b", "c"])
    assert list(states) == ["a", "b", "c"]
    for state, parameter in zip(states.values(), ours, strict=True):
        assert state.keys() == expected
        assert all(tensor.dtype == torch.float32 for tensor in state.values())
        for key in expected - {"step"}:
            assert state[key].shape == parameter.shape


def test_an_optimizer_that_cannot_be_run_is_refused_with_those_that_can():
    with pytest.raises(
        WishError, match=r"'lion' cannot be run; .*--optimizer adamw, adamw-bf16 or sgd"
    ):
        StageOptimizer("lion", parameters())


def test_rounded_steps_follow_the_names_of_the_parameters():
    one, other, stranger = (
        [torch.nn.Parameter(torch.ones(99, 9, dtype=torch.bfloat16))] for _ in range(3)
    )
    for group, names in ((one, ["w"]), (other, ["w"]), (stranger, ["v"])):
        optimizer = StageOptimizer("adamw-bf16", group, names=names)
        group[0].grad = torch.ones_like(group[0])
        optimizer.step(1e-3)
    assert torch.equal(one[0], other[0])
    assert not torch.equal(one[0], stranger[0])


@pytest.mark.parametrize("name", ["adamw", "adamw-bf16", "sgd"])
def test_a_restored_optimizer_goes_on_bit_for_bit(name):
    dtype = torch.bfloat16
    straight, stopped = parameters(dtype), parameters(dtype)
    first, second = (StageOptimizer(name, group) for group in (straight, stopped))
    for number, grads in enumerate(gradients(4)):
        if number == 2:
            states = [
                {key: value.clone() for key, value in state.items()}
                for state in second.states("abc").values()
            ]
            second = StageOptimizer(name, stopped)
            second.restore(states)
        for group in (straight, stopped):
            for parameter, grad in zip(group, grads, strict=True):
                parameter.grad = grad.to(dtype)
        first.step(0.01)
        second.step(0.01)
    assert all(map(torch.equal, straight, stopped))


# --- clipping -----------------------------------------------------------------


def parameters_with_gradients(dtype=torch.float32, *, size=3.0):
    generator = torch.Generator().manual_seed(0)
    parameters = []
    for shape in [(7, 5), (11,), (3, 2, 4)]:
        parameter = torch.nn.Parameter(torch.zeros(shape, dtype=dtype))
        grad = torch.randn(shape, generator=generator)
        parameter.grad = (size * grad).to(dtype)
        parameters.append(parameter)
    return parameters


def test_three_and_four_have_norm_five():
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(3)]
    parameters[0].grad = torch.tensor([3.0])
    parameters[2].grad = torch.tensor([4.0])
    assert squared_norm(parameters) == 25.0


def test_without_gradients_the_norm_is_0():
    assert squared_norm([]) == 0.0
    assert squared_norm([torch.nn.Parameter(torch.zeros(3))]) == 0.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_squares_of_the_stages_sum_to_the_square_of_the_model(dtype):
    parameters = parameters_with_gradients(dtype)
    exact = sum(p.grad.double().square().sum().item() for p in parameters)
    split = squared_norm(parameters[:1]) + squared_norm(parameters[1:])
    assert squared_norm(parameters) == pytest.approx(exact, rel=1e-5)
    assert split == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize("max_norm", [0.1, 1.0, 1e3])
def test_clipping_is_torchs_own(max_norm):
    ours, theirs = parameters_with_gradients(), parameters_with_gradients()
    clip(ours[:2], squared_norm(ours) ** 0.5, max_norm)
    clip(ours[2:], squared_norm(theirs) ** 0.5, max_norm)
    torch.nn.utils.clip_grad_norm_(theirs, max_norm)
    for mine, yours in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, yours.grad, rtol=1e-6, atol=0)


def test_small_gradients_are_left_as_they_are():
    parameters = parameters_with_gradients(size=1e-3)
    before = [copy.deepcopy(p.grad) for p in parameters]
    clip(parameters, squared_norm(parameters) ** 0.5, 1.0)
    assert all(map(torch.equal, before, (p.grad for p in parameters)))


def test_a_largest_norm_of_0_is_off():
    parameters = parameters_with_gradients(size=1e3)
    before = [copy.deepcopy(p.grad) for p in parameters]
    clip(parameters, squared_norm(parameters) ** 0.5, 0.0)
    assert all(map(torch.equal, before, (p.grad for p in parameters)))


@pytest.mark.parametrize("order", [1, -1], ids=["largest first", "largest last"])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, dtype) for name in KINDS for dtype in ("float32", "bfloat16")]
    + [("adamw-bf16", "bfloat16")],
)
def test_the_end_of_a_step_takes_no_more_than_is_foreseen(name, dtype, order):
    shapes = [(100, 80), (30, 40), (30,)][::order]
    stage = [torch.nn.Parameter(torch.randn(s).to(DTYPES[dtype])) for s in shapes]
    optimizer = StageOptimizer(name, stage)
    draw_gradients(stage)
    take_step(stage, optimizer)  # makes the states
    draw_gradients(stage)
    states = optimizer.states(shapes).values()
    tensors = [tensor for state in states for tensor in state.values()]
    with LiveBytes([*stage, *(p.grad for p in stage), *tensors]) as live:
        before = live.current_bytes
        take_step(stage, optimizer)
    sizes = [parameter.numel() for parameter in stage]
    layers = [
        LayerProfile(name=str(i), num_parameters=size, largest_parameter=size)
        for i, size in enumerate(sizes)
    ]
    foreseen = step_peak_bytes(layers, optimizer_spec(name, dtype))
    norms_bytes = 4 * 3 * len(sizes)
    assert foreseen <= live.peak_bytes - before <= foreseen + norms_bytes


def draw_gradients(stage):
    for parameter in stage:
        parameter.grad = torch.randn_like(parameter)


def take_step(stage, optimizer):
    norm = squared_norm(stage) ** 0.5
    clip(stage, norm, norm / 2)
    optimizer.step(1e-3)
