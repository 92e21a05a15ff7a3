"""The layers' bytes, added up by the rule, are those of a stage of several layers.

The referee follows a real stage storage by storage through the I and W that the engine
runs, its graph in parts. What the model makes around its layers (rotary tables) is
counted for itself; the gradient of the output is there before, as a buffer of the run.
"""

from dataclasses import asdict
from functools import cache

import pytest
import torch
from layer_runs import model_run, model_stage
from test_exact_bytes import config_of

from planner.chain.split_backward import input_backward, weight_backward
from planner.measure.layer_memory import measure_kept, measure_memory
from planner.measure.live_bytes import LiveBytes
from planner.memory.stage_levels import StageLevels, stage_levels
from planner.model_profile import LayerProfile

SHAPE = (1, 64)
NUM_BLOCKS = 4
NAMES = [
    "llama",
    "gpt2",
    "qwen2",
    pytest.param("mixtral", marks=pytest.mark.transformers5),
]


def followed(stage, run):
    """What really happens: the levels of a stage's actions on one microbatch."""
    with torch.no_grad():
        grad = torch.ones_like(run.forward(run.make_input()))
    run.drop_gradients()
    with LiveBytes([*run.live_tensors(), grad]) as live:
        kept = measure_kept(run, meter=live)
        _, _, first_weight_grad = split_levels(stage, run, grad, live, kept)
        run.drop_gradients()
        _, _, first = whole_levels(run, grad, live)
        kept, forward, backward = whole_levels(run, grad, live)
        levels = split_levels(stage, run, grad, live, kept)
    run.drop_gradients()
    input_grad, weight_kept, weight_grad = levels
    return StageLevels(
        kept_bytes=kept,
        weight_kept_bytes=weight_kept,
        forward_peak_bytes=forward,
        backward_peak_bytes=backward,
        first_backward_peak_bytes=first,
        input_grad_peak_bytes=input_grad,
        weight_grad_peak_bytes=weight_grad,
        first_weight_grad_peak_bytes=first_weight_grad,
    )


def whole_levels(run, grad, live):
    """After F, highest in F, highest in B."""
    low = live.current_bytes
    live.reset_peak()
    output = run.forward(run.make_input())
    forward = live.peak_bytes - low
    edge = torch.autograd.graph.get_gradient_edge(output)
    del output  # in a buffer of the next stage
    kept = live.current_bytes - low
    live.reset_peak()
    torch.autograd.backward((edge,), (grad,))
    run.drop_input_gradients()
    return kept, forward, live.peak_bytes - low


def split_levels(stage, run, grad, live, kept):
    """Highest in I, after I, highest in W."""
    low = live.current_bytes
    with run.graph_parts.made() as parts:
        output = run.forward(run.make_input())
    assert len(parts) == len(stage.layers) - 1
    output_bytes = live.current_bytes - low - kept
    live.reset_peak()
    _, groups = input_backward([output], [grad], [run.leaf], run.parameters, parts)
    input_grad = live.peak_bytes - low - output_bytes
    del output
    run.drop_input_gradients()
    weight_kept = live.current_bytes - low
    live.reset_peak()
    weight_backward(run.parameters, groups)
    return input_grad, weight_kept, live.peak_bytes - low


@cache
def sized_config(name):
    """Large heads: their gradients are what counts in W, when it is their turn."""
    config = config_of(name)
    config.vocab_size = 4096
    config.tie_word_embeddings = name == "qwen2"
    return config


@cache
def layer_profiles(name):
    """A block, the head, and what a stage keeps around its layers."""
    config = sized_config(name)
    block = measure_memory(model_run(config, "block", shape=SHAPE))
    again = measure_memory(model_run(config, "block", shape=SHAPE, recompute=True))
    # Recompute changes what F leaves, and nothing after I.
    assert again.weight_activation_bytes == block.weight_activation_bytes
    stage, run = model_stage(config, 1, 1, shape=SHAPE)
    around = measure_memory(run).activation_bytes - block.activation_bytes
    costs = {**asdict(block), "recompute_activation_bytes": again.activation_bytes}
    head = model_run(config, "head", shape=SHAPE)
    return (
        layer_profile("block", stage.owned_parameters().values(), costs),
        layer_profile("head", head.parameters, asdict(measure_memory(head))),
        around,
    )


def layer_profile(name, parameters, costs):
    size = sum(parameter.numel() for parameter in parameters)
    return LayerProfile(name=name, num_parameters=size, **costs)


def computed_levels(layers, recompute, around):
    levels = stage_levels(
        layers,
        recomputed=[recompute and layer.name == "block" for layer in layers],
        gradient_bytes=4,
        is_first=False,
    )
    return {key: level + around for key, level in asdict(levels).items()}


either_way = pytest.mark.parametrize("recompute", [False, True])
every_model = pytest.mark.parametrize("name", NAMES)


@either_way
@every_model
def test_layers_add_up_to_a_stage_with_a_head(name, recompute):
    block, head, around = layer_profiles(name)
    settings = {"shape": SHAPE, "recompute": recompute}
    real = asdict(followed(*model_stage(sized_config(name), 2, -1, **settings)))
    layers = [block] * (NUM_BLOCKS - 1) + [head]
    computed = computed_levels(layers, recompute, around)
    # All gradients count from the start of the first W.
    first = "first_weight_grad_peak_bytes"
    gradients = sum(layer.num_parameters for layer in layers) * 4
    assert real[first] <= computed.pop(first) * 1.01 <= real[first] * 1.02 + gradients
    for key, level in computed.items():
        assert level == pytest.approx(real[key], rel=0.01), key


@either_way
@every_model
def test_layers_add_up_to_a_stage_of_blocks_but_for_some_hidden_states(name, recompute):
    """Counted twice: the output's gradient. Not counted: the stand-ins during F."""
    block, _, around = layer_profiles(name)
    settings = {"shape": SHAPE, "recompute": recompute}
    real = asdict(followed(*model_stage(sized_config(name), 1, NUM_BLOCKS, **settings)))
    computed = computed_levels([block] * NUM_BLOCKS, recompute, around)
    forward, real_forward = (x.pop("forward_peak_bytes") for x in (computed, real))
    assert forward > real_forward - 3 * block.output_bytes
    first = "first_weight_grad_peak_bytes"
    assert computed.pop(first) > 0.992 * real[first]
    for key, level in computed.items():
        assert 0.992 * real[key] <= level <= real[key] + 3 * block.output_bytes, key
