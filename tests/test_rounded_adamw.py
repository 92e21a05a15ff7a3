"""bfloat16 weights that are rounded at random go where fp32 ones go."""

import pytest
import torch

import planner.rounded_adamw
from planner.rounded_adamw import RoundedAdamW, round_at_random

LR = 1e-4


def weights(size=4096, value=1.0):
    return torch.nn.Parameter(torch.full((size,), value, dtype=torch.bfloat16))


def take_steps(parameter, num_steps, *, optimizer=None, name="w", decay=0.0, seed=0):
    optimizer = optimizer or RoundedAdamW(parameter, weight_decay=decay, name=name)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(num_steps):
        grad = torch.randn(parameter.shape, generator=generator)
        parameter.grad = grad.to(torch.bfloat16)
        optimizer.step(LR)
    return optimizer


def test_steps_too_small_for_bfloat16_arrive_on_average():
    # Neighbours below 1 are 2^-8 apart; Adam with a constant gradient moves by lr.
    parameter = weights()
    optimizer = RoundedAdamW(parameter, weight_decay=0.0, name="w")
    for _ in range(20):
        parameter.grad = torch.ones_like(parameter)
        optimizer.step(LR)
    assert {value % 2**-8 for value in parameter.tolist()} == {0.0}
    assert 1 - parameter.float().mean().item() == pytest.approx(20 * LR, rel=0.1)


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_the_mean_of_many_is_the_fp32_weight(decay):
    parameter, exact = weights(2**14, 0.7), torch.nn.Parameter(torch.full((1,), 0.7))
    optimizer = RoundedAdamW(parameter, weight_decay=decay, name="w")
    reference = torch.optim.AdamW([exact], lr=1e-3, weight_decay=decay)
    start = exact.item()
    for number in range(8):
        parameter.grad = torch.full_like(parameter, (-1) ** number * 0.5 + 0.25)
        exact.grad = torch.full_like(exact, (-1) ** number * 0.5 + 0.25)
        optimizer.step(1e-3)
        reference.step()
    moved = parameter.float().mean().item() - weights(1, 0.7).item()
    assert moved == pytest.approx(exact.item() - start, rel=0.05)


def test_copies_of_a_parameter_stay_equal_whatever_was_drawn_before():
    one, other, stranger = weights(), weights(), weights()
    take_steps(one, 5)
    torch.rand(17)
    take_steps(other, 5)
    take_steps(stranger, 5, name="another")
    assert torch.equal(one, other)
    assert not torch.equal(one, stranger)


@pytest.mark.parametrize("value", [1.0, -1.0, 3e-39, 0.0, float("inf"), -(2.0**120)])
def test_what_bfloat16_can_hold_is_not_rounded(value):
    exact = torch.full((999,), value).bfloat16()
    rounded = torch.empty_like(exact)
    round_at_random(exact.float(), rounded, torch.Generator().manual_seed(0))
    assert torch.equal(rounded, exact)


def test_nan_stays_nan():
    rounded = torch.empty(99, dtype=torch.bfloat16)
    exact = torch.full((99,), float("nan"))
    round_at_random(exact, rounded, torch.Generator().manual_seed(0))
    assert rounded.isnan().all()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("share", [0.0625, 0.5, 0.8125])
def test_the_chance_to_go_up_is_the_share_of_the_way(share, sign):
    below, gap = 1.5, 2**-7
    exact = torch.full((2**16,), sign * (below + share * gap))
    rounded = torch.empty_like(exact, dtype=torch.bfloat16)
    round_at_random(exact, rounded, torch.Generator().manual_seed(0))
    found = rounded.float().abs()
    assert {*found.tolist()} == {below, below + gap}
    assert (found > below).float().mean().item() == pytest.approx(share, abs=0.01)


def test_the_mean_of_the_squares_falls_again_after_a_large_gradient():
    # By a thousandth a step, which rounding to the nearest would never let happen.
    parameter = weights(2**14)
    optimizer = RoundedAdamW(parameter, weight_decay=0.0, name="w")
    for grad in (1.0, *[0.0] * 50):
        parameter.grad = torch.full_like(parameter, grad)
        optimizer.step(LR)
    mean = optimizer.states()["exp_avg_sq"].float().mean().item()
    assert mean == pytest.approx(1e-3 * 0.999**50, rel=2e-3)


def test_what_others_draw_is_left_alone():
    parameter = weights()
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    take_steps(parameter, 2)
    assert torch.equal(torch.rand(4), expected)


def test_a_restored_optimizer_goes_on_bit_for_bit():
    straight, stopped = weights(), weights()
    take_steps(straight, 3)
    states = take_steps(stopped, 3).states()
    optimizer = RoundedAdamW(stopped, weight_decay=0.0, name="w")
    optimizer.restore({key: value.clone() for key, value in states.items()})
    going_on = RoundedAdamW(straight, weight_decay=0.0, name="w")
    going_on.restore(states)
    take_steps(straight, 3, optimizer=going_on, seed=1)
    take_steps(stopped, 3, optimizer=optimizer, seed=1)
    assert torch.equal(straight, stopped)
    assert int(optimizer.states()["step"]) == 6


def test_states_have_the_shape_of_the_parameter_and_its_dtype():
    parameter = torch.nn.Parameter(torch.ones(6, 8, dtype=torch.bfloat16))
    optimizer = RoundedAdamW(parameter, weight_decay=0.0, name="w")
    assert optimizer.states() == {}
    states = take_steps(parameter, 1, optimizer=optimizer).states()
    assert {"step", "exp_avg", "exp_avg_sq"} == states.keys()
    for key in ("exp_avg", "exp_avg_sq"):
        assert states[key].shape == (6, 8)
        assert states[key].dtype == torch.bfloat16


def test_every_piece_of_a_large_parameter_is_stepped(monkeypatch):
    monkeypatch.setattr(planner.rounded_adamw, "ROUNDED_CHUNK", 100)
    pieces, whole = weights(1050), weights(1050)
    optimizer = take_steps(pieces, 4)
    monkeypatch.undo()
    reference = take_steps(whole, 4)
    for key in ("exp_avg", "exp_avg_sq"):
        found, wanted = optimizer.states()[key], reference.states()[key]
        torch.testing.assert_close(found, wanted, rtol=0.05, atol=4e-3)
    assert (pieces != 1).any()
    assert (pieces - whole).abs().max() <= 2**-7  # one rounding apart


def test_a_gradient_that_lies_otherwise_in_memory_is_put_in_order():
    one, other = (
        torch.nn.Parameter(torch.ones(3, 5, dtype=torch.bfloat16)) for _ in range(2)
    )
    grad = torch.randn(5, 3).to(torch.bfloat16).T
    optimizers = [RoundedAdamW(x, weight_decay=0.0, name="w") for x in (one, other)]
    one.grad, other.grad = grad, grad.contiguous()
    for optimizer in optimizers:
        optimizer.step(0.1)
    assert torch.equal(one, other)
    assert one.grad is None


def test_without_a_gradient_nothing_moves():
    parameter = weights()
    optimizer = RoundedAdamW(parameter, weight_decay=0.5, name="w")
    optimizer.step(0.1)
    assert (parameter == 1).all()
    assert optimizer.states() == {}
