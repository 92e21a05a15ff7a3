"""Times without the card: the slower of two limits, and at least a launch."""

import pytest
import torch
from layer_runs import CONFIGS, FAKE_CONFIGS, model_run, module_run

from planner.cards import card_named
from planner.measure.fake_tensors import fake_tensors
from planner.measure.flops import count_forward_flops
from planner.measure.roofline import (
    EFFICIENCY,
    RooflineClock,
    estimate_times,
    optimizer_seconds,
)

CARD = card_named("rtx3090")
BYTES_PER_S = CARD.memory_bandwidth * EFFICIENCY.memory
FLOPS_PER_S = {
    torch.float32: CARD.fp32_flops * EFFICIENCY.matrix,
    torch.bfloat16: CARD.bf16_flops * EFFICIENCY.matrix,
}
MIB = 2**20


@pytest.fixture(autouse=True)
def _nothing_is_allocated():
    with fake_tensors():
        yield


def seconds(work, dtype=torch.float32):
    with RooflineClock(CARD, dtype) as clock:
        work()
    return clock.elapsed_s


@pytest.mark.parametrize("dtype", FLOPS_PER_S)
def test_a_large_product_takes_its_flops(dtype):
    a, b = (torch.zeros(4096, 4096, dtype=dtype) for _ in range(2))
    expected = 2 * 4096**3 / FLOPS_PER_S[dtype]
    assert seconds(lambda: a @ b, dtype) == pytest.approx(expected)


def test_a_large_sum_takes_the_bytes_it_reads_and_writes():
    a, b = torch.zeros(16 * MIB), torch.zeros(16 * MIB)
    expected = 3 * 64 * MIB / BYTES_PER_S
    assert seconds(lambda: a + b) == pytest.approx(expected)
    assert seconds(lambda: a.add_(b)) == pytest.approx(expected)
    assert seconds(lambda: a + a) == pytest.approx(expected * 2 / 3)


def test_a_small_operator_takes_a_launch():
    a = torch.zeros(8)
    assert seconds(lambda: a + a + a) == pytest.approx(2 * EFFICIENCY.launch_s)


def test_views_and_empty_tensors_take_no_time():
    a = torch.zeros(16 * MIB)
    assert seconds(lambda: (a.view(2, -1).t()[1:], a.detach(), a.expand(8, -1))) == 0
    assert seconds(lambda: torch.empty_like(a)) == 0


def test_what_is_computed_on_meta_takes_no_time():
    a = torch.zeros(16 * MIB, device="meta")
    assert seconds(lambda: a + a) == 0


def test_an_expanded_tensor_is_read_once():
    a, row = torch.zeros(4096, 4096), torch.zeros(4096).expand(4096, 4096)
    expected = (2 * 64 * MIB + 4 * 4096) / BYTES_PER_S
    assert seconds(lambda: a + row) == pytest.approx(expected)


def test_a_lookup_reads_its_rows_and_not_the_table():
    table, ids = torch.zeros(100_000, 1024), torch.zeros(4096, dtype=torch.long)
    expected = (2 * 4096 * 1024 * 4 + 4096 * 8) / BYTES_PER_S
    found = seconds(lambda: torch.nn.functional.embedding(ids, table))
    assert found == pytest.approx(expected)
    assert seconds(lambda: table[ids]) == pytest.approx(expected)


def test_a_large_linear_layer_is_two_thirds_backward():
    width, tokens = 4096, 8192
    run = module_run(torch.nn.Linear(width, width, bias=False), (tokens, width))
    times = estimate_times(run, CARD, torch.float32)
    product_s = 2 * tokens * width**2 / FLOPS_PER_S[torch.float32]
    # Gradients are added to those of the microbatch before.
    sum_s = 3 * 4 * width**2 / BYTES_PER_S
    assert times.forward_s == pytest.approx(product_s)
    assert times.input_grad_s == pytest.approx(product_s, rel=0.01)
    assert times.backward_s == pytest.approx(2 * product_s + sum_s, rel=0.01)
    assert times.weight_grad_s == times.backward_s - times.input_grad_s
    assert run.leaf.grad is None
    assert run.parameters[0].grad is None


def test_the_first_layer_has_no_gradient_for_its_input():
    run = model_run(CONFIGS["llama"], "embedding")
    times = estimate_times(run, CARD, torch.float32)
    assert times.input_grad_s == 0
    assert times.weight_grad_s == times.backward_s > 0


@pytest.mark.parametrize("name", FAKE_CONFIGS)
def test_no_block_is_faster_than_its_flops(name):
    run = model_run(CONFIGS[name], "block", shape=(64, 128))
    times = estimate_times(run, CARD, torch.float32)
    flops_s = count_forward_flops(run) / FLOPS_PER_S[torch.float32]
    assert times.forward_s > flops_s
    assert times.backward_s > 2 * flops_s
    assert times.backward_s > times.input_grad_s > flops_s


# Bytes of one parameter: norm and clipping, from and to fp32, the step itself.
MOVED = {
    ("sgd", torch.float32): 12 + 0 + 12,
    ("adamw", torch.float32): 12 + 0 + 12 + 16,
    ("sgd", torch.bfloat16): 6 + 12 + 12,
    ("adamw", torch.bfloat16): 6 + 12 + 12 + 16,
}


@pytest.mark.parametrize(("name", "dtype"), MOVED)
def test_an_optimizer_step_takes_the_bytes_it_moves(name, dtype):
    expected_s = MOVED[name, dtype] / BYTES_PER_S
    assert optimizer_seconds(CARD, dtype)[name] == pytest.approx(expected_s)
