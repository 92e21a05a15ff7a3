"""On a card attention and dropout keep other things than on the CPU."""

import pytest
import torch
from layer_runs import module_run
from torch.nn import functional

from planner.measure.cuda_kernels import Attention, CudaKernels, choose_kernel
from planner.measure.fake_tensors import fake_tensors, real_tensors
from planner.measure.flops import missing_formulas
from planner.measure.layer_memory import measure_memory

AMPERE, ADA, VOLTA, A100 = (8, 6), (8, 9), (7, 0), (8, 0)
B, H, S, D = 2, 4, 64, 32
BF16 = torch.bfloat16


@pytest.fixture(autouse=True)
def _nothing_is_allocated():
    with fake_tensors():
        yield


def call(*, heads=H, key_heads=None, head=D, value=None, dtype=BF16, **settings):
    shapes = [
        (B, heads, S, head),
        (B, key_heads or heads, S, head),
        (B, key_heads or heads, S, value or head),
    ]
    query, key, value = (torch.empty(shape, dtype=dtype) for shape in shapes)
    return Attention(query=query, key=key, value=value, **settings)


@pytest.mark.parametrize(
    ("settings", "card", "kernel"),
    [
        ({}, AMPERE, "flash"),
        ({"is_causal": True, "dropout": 0.1}, AMPERE, "flash"),
        ({"key_heads": 2, "enable_gqa": True}, AMPERE, "flash"),
        ({"head": 256}, AMPERE, "flash"),
        ({"head": 256, "dropout": 0.1}, AMPERE, "efficient"),
        ({"head": 256, "dropout": 0.1}, A100, "flash"),
        ({"head": 200}, ADA, "efficient"),
        ({"head": 264}, AMPERE, "efficient"),
        ({"head": 192, "value": 128}, AMPERE, "efficient"),
        ({"dtype": torch.float32}, AMPERE, "efficient"),
        ({"dtype": torch.float32, "key_heads": 2}, AMPERE, "math"),
        ({"dtype": torch.float32, "head": 33}, AMPERE, "math"),
        ({"dtype": torch.float32, "head": 33}, VOLTA, "efficient"),
        ({"dtype": torch.float16}, VOLTA, "efficient"),
        ({}, VOLTA, "math"),
    ],
)
def test_the_kernel_is_the_first_that_can(settings, card, kernel):
    assert choose_kernel(call(**settings), card) == kernel


def test_a_mask_rules_flash_out():
    mask = torch.ones(S, S, dtype=torch.bool)
    assert choose_kernel(call(mask=mask), AMPERE) == "efficient"
    assert choose_kernel(call(mask=mask, key_heads=2), AMPERE) == "math"


class Attend(torch.nn.Module):
    """Attention of the input with itself."""

    def __init__(self, heads=H, key_heads=H, **settings):
        super().__init__()
        self.heads, self.key_heads, self.settings = heads, key_heads, settings

    def forward(self, x):
        def split(heads):
            return x[..., : heads * D].view(B, S, heads, D).transpose(1, 2)

        keys = split(self.key_heads)
        attended = functional.scaled_dot_product_attention(
            split(self.heads), keys, keys, **self.settings
        )
        return attended.transpose(1, 2).reshape(B, S, -1)


def kept(module, *, dtype=BF16, card=AMPERE):
    run = module_run(module, (B, S, H * D))
    run = type(run)(
        forward=module,
        leaf=torch.randn(B, S, H * D, dtype=dtype).requires_grad_(),
        parameters=(),
    )
    with CudaKernels(card):
        return measure_memory(run).activation_bytes


X = B * S * H * D  # elements of a hidden state
SCORES = B * H * S * S
ROWS = B * H * S  # one statistic of each query


def test_flash_keeps_inputs_output_and_one_statistic_a_query():
    seeds = 3 * 8  # of its random numbers
    assert kept(Attend(is_causal=True)) == 2 * X + 2 * X + 4 * ROWS + seeds


def test_flash_with_dropout_keeps_no_mask():
    assert kept(Attend(dropout_p=0.1)) == kept(Attend())


def test_efficient_attention_keeps_the_mask_as_a_bias():
    mask = torch.ones(S, S, dtype=torch.bool)
    found = kept(Attend(attn_mask=mask))
    seeds = 2 * 8
    assert found == 2 * X + 2 * X + 4 * ROWS + 2 * S * S + seeds


def test_a_bias_has_rows_of_sixteen():
    mask = torch.ones(1, 1, S, S - 3, dtype=torch.bool)
    query, key = torch.empty(B, H, S, D), torch.empty(B, H, S - 3, D)
    with CudaKernels(AMPERE):
        attended = functional.scaled_dot_product_attention(
            query.requires_grad_(), key, key, attn_mask=mask
        )
    bias = attended.grad_fn._saved_attn_bias
    assert bias.shape == (B, H, S, S - 3)
    assert bias.stride()[-2:] == (S, 1)


def test_grouped_queries_in_fp32_keep_all_scores():
    # Flash takes no fp32 and efficient attention no groups: scores stay.
    grouped = Attend(key_heads=2, enable_gqa=True, is_causal=True)
    assert kept(grouped, dtype=torch.float32) > 4 * SCORES
    assert kept(grouped) < 4 * X + 8 * ROWS


def test_dropout_keeps_one_byte_an_element():
    dropout = torch.nn.Dropout(0.1)
    assert kept(dropout) == X
    assert kept(dropout.eval()) == 0
    assert kept(torch.nn.Dropout(0.0)) == 0


def test_all_kernels_have_formulas_of_their_flops():
    from torch.utils.flop_counter import flop_registry

    known = {*flop_registry, *missing_formulas()}
    aten = torch.ops.aten
    for kernel in ("flash", "efficient"):
        name = f"_scaled_dot_product_{kernel}_attention"
        assert {getattr(aten, name), getattr(aten, f"{name}_backward")} <= known


def test_real_tensors_keep_to_the_kernels_they_have():
    with real_tensors(), CudaKernels(AMPERE):
        query = torch.randn(1, 2, 8, 4, dtype=BF16)
        attended = functional.scaled_dot_product_attention(query, query, query)
        assert attended.isfinite().all()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, BF16])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("key_heads", [H, 2])
@pytest.mark.parametrize("head", [30, 64, 128, 256])
def test_torch_takes_the_same_kernel_on_this_card(dtype, dropout, key_heads, head):
    from torch._subclasses.fake_tensor import unset_fake_temporarily
    from torch.backends.cuda import (
        SDPAParams,
        can_use_efficient_attention,
        can_use_flash_attention,
    )

    with unset_fake_temporarily():
        query = torch.randn(B, H, S, head, device="cuda", dtype=dtype).requires_grad_()
        keys = torch.randn(B, key_heads, S, head, device="cuda", dtype=dtype)
        is_grouped = key_heads != H
        parameters = SDPAParams(query, keys, keys, None, dropout, True, is_grouped)
        taken = choose_kernel(
            Attention(
                query=query,
                key=keys,
                value=keys,
                dropout=dropout,
                is_causal=True,
                enable_gqa=is_grouped,
            ),
            torch.cuda.get_device_capability(),
        )
        # torch pads odd head sizes before it asks.
        if head % 8 == 0:
            assert can_use_flash_attention(parameters) == (taken == "flash")
        if taken != "flash":
            assert can_use_efficient_attention(parameters) == (taken == "efficient")
