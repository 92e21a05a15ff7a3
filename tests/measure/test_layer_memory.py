"""A layer's memory, held against pencil and paper."""

import pytest
import torch
from layer_runs import CONFIGS, FAKE_CONFIGS, model_run, module_run

from planner.chain.recompute import recomputed
from planner.measure.fake_tensors import fake_tensors
from planner.measure.layer_memory import LayerMemory, measure_kept, measure_memory
from planner.measure.meter import AllocatorMeter

B, S, H = 2, 64, 64
X = B * S * H * 4  # a hidden state in fp32
W = H * H * 4


def test_a_linear_layer_keeps_its_input():
    run = module_run(torch.nn.Linear(H, H, bias=False), (B, S, H))
    assert measure_memory(run) == LayerMemory(
        activation_bytes=X,
        input_grad_activation_bytes=2 * X,
        weight_activation_bytes=2 * X,  # input, and the output's gradient
        weight_grad_activation_bytes=0,
        output_bytes=X,
        kept_input_bytes=X,
        kept_output_grad_bytes=X,
        forward_peak_bytes=2 * X,  # input and output
        backward_peak_bytes=2 * X + W,  # both gradients, and the weight's share
        first_backward_peak_bytes=2 * X + W,  # and the weight's gradient
        input_grad_peak_bytes=2 * X,
        weight_grad_peak_bytes=W,
    )


def test_a_frozen_layer_keeps_nothing_but_for_its_input_gradient():
    linear = torch.nn.Linear(H, H, bias=False).requires_grad_(False)
    memory = measure_memory(module_run(linear, (B, S, H)))
    assert memory.activation_bytes == 0
    assert memory.forward_peak_bytes == 2 * X


def test_an_mlp_keeps_both_inputs_and_what_the_activation_was_given():
    mlp = torch.nn.Sequential(
        torch.nn.Linear(H, 4 * H, bias=False),
        torch.nn.GELU(),
        torch.nn.Linear(4 * H, H, bias=False),
    )
    memory = measure_memory(module_run(mlp, (B, S, H)))
    assert memory.activation_bytes == X + 4 * X + 4 * X
    assert memory.output_bytes == X
    assert memory.forward_peak_bytes == X + 4 * X + 4 * X + X
    # The second matrix's: its output's and its input's gradient, its share.
    assert memory.backward_peak_bytes == X + 4 * X + 4 * W


def test_a_softmax_keeps_its_output():
    run = module_run(torch.nn.Softmax(-1), (B, S, H))
    memory = measure_memory(run)
    assert memory.activation_bytes == X
    assert memory.forward_peak_bytes == 2 * X
    assert memory.backward_peak_bytes == 2 * X


def test_a_chain_of_views_and_sums_keeps_nothing():
    memory = measure_memory(module_run(torch.nn.Flatten(), (B, S, H)))
    assert memory.activation_bytes == 0
    assert memory.forward_peak_bytes == X, "the output is a view of the input"


def test_recompute_keeps_the_input_only_and_needs_the_rest_in_the_backward():
    mlp = torch.nn.Sequential(
        torch.nn.Linear(H, 4 * H, bias=False),
        torch.nn.GELU(),
        torch.nn.Linear(4 * H, H, bias=False),
    )
    kept = measure_memory(module_run(mlp, (B, S, H)))
    run = module_run(mlp, (B, S, H), forward=recomputed(mlp))
    again = measure_memory(run)
    assert again.activation_bytes == X
    assert again.output_bytes == kept.output_bytes
    whole = kept.activation_bytes + kept.backward_peak_bytes
    assert again.activation_bytes + again.backward_peak_bytes == whole


@pytest.mark.parametrize("ends_graph", [True, False])
def test_what_is_split_keeps_all_inputs_and_the_gradients_that_w_needs(ends_graph):
    mlp = torch.nn.Sequential(
        torch.nn.Linear(H, 4 * H, bias=False),
        torch.nn.GELU(),
        torch.nn.Linear(4 * H, H, bias=False),
    )
    memory = measure_memory(module_run(mlp, (B, S, H), ends_graph=ends_graph))
    # A graph that is walked through again keeps the activation's input, too.
    gradients = 4 * X + X
    assert memory.weight_activation_bytes == X + 4 * X + 4 * X + gradients
    assert memory.input_grad_activation_bytes == memory.weight_activation_bytes
    # Another layer's group of weights holds the graph, unless it ends here.
    assert memory.weight_grad_activation_bytes == (0 if ends_graph else 4 * X)
    run = module_run(mlp, (B, S, H), forward=recomputed(mlp))
    again = measure_memory(run)
    assert again.weight_activation_bytes == memory.weight_activation_bytes
    assert measure_kept(run) == again.activation_bytes == X


@pytest.mark.parametrize("ends_graph", [True, False])
def test_after_i_a_loss_is_gone_down_to_the_last_parameters(ends_graph):
    linear = torch.nn.Linear(H, 4 * H, bias=False)
    run = module_run(
        linear,
        (B, S, H),
        forward=lambda x: linear(x).exp().sum(),
        ends_graph=ends_graph,
    )
    memory = measure_memory(run)
    assert memory.activation_bytes == X + 4 * X  # input, exponentials
    # In one graph with other layers it stays until I is done with them, too.
    exponentials = 0 if ends_graph else 4 * X
    assert memory.input_grad_activation_bytes == X + 4 * X + exponentials
    assert memory.weight_activation_bytes == X + 4 * X  # input, gradient


def test_w_of_an_embedding_is_all_of_its_b():
    run = model_run(CONFIGS["llama"], "embedding")
    memory = measure_memory(run)
    assert memory.weight_activation_bytes == memory.activation_bytes
    assert memory.input_grad_peak_bytes == 0
    assert memory.weight_grad_peak_bytes == memory.backward_peak_bytes


def test_gradients_are_dropped_and_do_not_change_the_next_answer():
    run = module_run(torch.nn.Linear(H, H), (B, S, H))
    first = measure_memory(run)
    run.forward(run.make_input()).sum().backward()
    assert measure_memory(run) == first
    assert run.leaf.grad is None
    assert all(parameter.grad is None for parameter in run.parameters)


def test_the_granularity_rounds_every_tensor_up():
    run = module_run(torch.nn.Linear(3, 3, bias=False), (1, 3))
    assert measure_memory(run, granularity=512) == LayerMemory(
        activation_bytes=512,
        input_grad_activation_bytes=1024,
        weight_activation_bytes=1024,
        weight_grad_activation_bytes=0,
        output_bytes=12,
        kept_input_bytes=12,
        kept_output_grad_bytes=12,
        forward_peak_bytes=1024,
        backward_peak_bytes=3 * 512,
        first_backward_peak_bytes=3 * 512,
        input_grad_peak_bytes=1024,
        weight_grad_peak_bytes=512,
    )


@pytest.mark.parametrize("name", FAKE_CONFIGS)
@pytest.mark.parametrize(
    ("dtype", "recompute"), [("float32", False), ("bfloat16", True)]
)
def test_fake_blocks_tell_what_real_ones_take(name, dtype, recompute):
    settings = {"dtype": dtype, "recompute": recompute}
    measured = measure_memory(model_run(CONFIGS[name], "block", **settings))
    with fake_tensors():
        fake = model_run(CONFIGS[name], "block", **settings)
        assert measure_memory(fake) == measured
    hidden_bytes = 2 * 16 * 32 * (2 if dtype == "bfloat16" else 4)
    assert measured.output_bytes == hidden_bytes
    assert (measured.activation_bytes == hidden_bytes) == recompute


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["embedding", "block", "head"])
@pytest.mark.parametrize("name", CONFIGS)
def test_the_allocator_of_a_card_counts_what_the_storages_come_to(name, kind):
    device = torch.device("cuda")
    run = model_run(CONFIGS[name], kind, dtype="bfloat16", device=device)
    run.forward(run.make_input()).sum().backward()  # makes lasting workspaces
    followed = measure_memory(run, granularity=512)
    counted = measure_memory(run, meter=AllocatorMeter(device))
    assert counted.output_bytes == followed.output_bytes
    for key in ("activation_bytes", "forward_peak_bytes", "backward_peak_bytes"):
        assert getattr(counted, key) == pytest.approx(getattr(followed, key), rel=0.01)


def test_a_meter_is_read_where_a_storage_would_be_counted():
    class Scripted:
        """Says what it is told: now and at the peak, in the order of the run."""

        levels = iter([0, 0, 100, 400, 100, 900, 600, 500, 150])
        peaks = iter([0, 7, 1000, 1500, 1250, 580])
        num_resets = 0

        @property
        def current_bytes(self):
            return next(self.levels)

        @property
        def peak_bytes(self):
            return next(self.peaks)

        def reset_peak(self):
            self.num_resets += 1

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    meter = Scripted()
    run = module_run(torch.nn.Linear(H, H, bias=False), (B, S, H))
    assert measure_memory(run, meter=meter) == LayerMemory(
        activation_bytes=400 - 100,
        input_grad_activation_bytes=600 - 100,
        weight_activation_bytes=500 - 100,
        weight_grad_activation_bytes=150 - 100,
        output_bytes=X,
        kept_input_bytes=400 - 100,  # no more than all that is kept
        kept_output_grad_bytes=500 - 100,
        forward_peak_bytes=1000 - 100,
        backward_peak_bytes=1500 - 400,
        first_backward_peak_bytes=7,
        input_grad_peak_bytes=1250 - 900,
        weight_grad_peak_bytes=580 - 500,
    )
    assert meter.num_resets == 6
