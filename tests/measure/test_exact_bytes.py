"""Bytes of a computed layer held against those of a real run.

Storage by storage they are equal. A second referee knows nothing of tensors: torch's
profiler writes down every allocation and release of the CPU's allocator. It sees more,
so it is met within a share: what an operator takes and frees inside itself, which is
on the CPU a copy for a moment where an operator meets two types (cards do without), and
a few integers for positions, which fake tensors need not look at.
"""

import gc

import pytest
import torch
from layer_runs import model_run
from model_folders import smollm2_folder
from torch.profiler import ProfilerActivity, profile
from transformers import AutoConfig

from planner.chain.tiny import tiny_config
from planner.measure.cuda_kernels import CudaKernels
from planner.measure.fake_tensors import fake_tensors
from planner.measure.layer_memory import measure_memory

SHAPE = (1, 32)
LONG = (1, 256)  # beside it the states of random numbers that recompute keeps are small
KINDS = ("embedding", "block", "head")
SAMPLES = [
    "llama",
    "qwen2",
    "gemma",
    pytest.param("mixtral", marks=pytest.mark.transformers5),
    "gpt2",
    "mamba",
    "smollm2",
]


def config_of(name, *, dropout=True):
    if name == "smollm2":
        return AutoConfig.from_pretrained(smollm2_folder())
    config = tiny_config(name)
    if name == "gemma":
        config.vocab_size = 8192
    if name == "gpt2":
        share = 0.1 if dropout else 0.0
        config.attn_pdrop = config.resid_pdrop = config.embd_pdrop = share
    return config


@pytest.fixture(autouse=True)
def plain_products():
    """Some processors rearrange weights in half precision; no card does."""
    torch.backends.mkldnn.set_flags(False)
    yield
    torch.backends.mkldnn.set_flags(True)


def allocated(work):
    """Level after some work and highest level during it [bytes], and its result."""
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        result = work()
    events = profiled.profiler.kineto_results.events()
    events = [event for event in events if event.name() == "[memory]"]
    level = highest = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        level += event.nbytes()
        highest = max(highest, level)
    return level, highest, result


def run_for_real(run):
    """What the allocator says of one forward and one backward."""
    for parameter in run.parameters:
        parameter.grad = torch.zeros_like(parameter)

    def forward():
        output = run.forward(run.make_input())
        edge = torch.autograd.graph.get_gradient_edge(output)
        return edge, output.shape, output.dtype

    kept, forward_peak, (edge, shape, dtype) = allocated(forward)

    def backward():
        torch.autograd.backward((edge,), (torch.ones(shape, dtype=dtype),))

    _, backward_peak, _ = allocated(backward)
    return kept, forward_peak, backward_peak


def figures(memory):
    peaks = (memory.forward_peak_bytes, memory.backward_peak_bytes)
    return (memory.activation_bytes, *peaks)


def close_to(real, dtype, recompute=False):
    kept, forward_peak, backward_peak = real
    if recompute:
        # A copy of the random numbers' state; a card's takes 16 bytes.
        kept -= torch.get_rng_state().nbytes
    share = {"float32": 0.01, "bfloat16": 0.03}[dtype]
    integers_bytes = 4 * 8 * SHAPE[0] * SHAPE[1]
    return (
        pytest.approx(kept, rel=0.01, abs=64),
        pytest.approx(forward_peak, rel=share, abs=integers_bytes),
        pytest.approx(backward_peak, rel=share, abs=64),
    )


@pytest.mark.parametrize(
    ("dtype", "recompute"),
    [("float32", False), ("bfloat16", False), ("float32", True)],
    ids=["fp32", "bf16", "recomputed"],
)
@pytest.mark.parametrize("name", SAMPLES)
def test_a_computed_layer_takes_what_a_real_one_takes(name, dtype, recompute):
    config = config_of(name)
    shape = LONG if recompute and name != "mamba" else SHAPE
    settings = {"shape": shape, "dtype": dtype, "recompute": recompute}
    for kind in ("block",) if recompute else KINDS:
        with fake_tensors():
            computed = measure_memory(model_run(config, kind, **settings))
        run = model_run(config, kind, **settings)
        if kind == "block":
            assert computed == measure_memory(run)
        assert figures(computed) == close_to(run_for_real(run), dtype, recompute), kind


@pytest.mark.parametrize("name", SAMPLES[:-2])  # of those that attend or drop out
def test_half_precision_without_dropout_takes_the_same_on_a_card(name):
    config = config_of(name, dropout=False)
    settings = {"shape": SHAPE, "dtype": "bfloat16"}
    for kind in KINDS:
        with fake_tensors(), CudaKernels((8, 6)):
            computed = measure_memory(model_run(config, kind, **settings))
        real = run_for_real(model_run(config, kind, **settings))
        assert figures(computed) == close_to(real, "bfloat16"), kind
