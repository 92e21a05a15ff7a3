"""A profile tells the same bytes with and without the card, quickly and in no space."""

import json
import subprocess
import sys
import weakref

import pytest
import torch
from layer_runs import CONFIGS, FAKE_CONFIGS
from model_folders import llama_config, save_model

from planner.cards import card_named
from planner.chain.crossing import Crossing
from planner.chain.tiny import tiny_config
from planner.errors import ModelError, WishError
from planner.measure import bench, layer_building, sampling, visit
from planner.measure.profiling import profile_model
from planner.measure.progress import Lines
from planner.measure.timed import LayerTimes

# About 1.2 B parameters, in the manner of Llama; never drawn, only described.
BILLION = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 5,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}
SCRIPT = """
import json, resource, sys, time
from planner.measure import Lines, profile_model

def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def profile(folder, seq_len):
    return profile_model(
        folder, device="rtx3090", dtype="bfloat16", seq_len=seq_len,
        microbatch_sizes=(1,), attention="sdpa", revision=None,
        trust_remote_code=False, progress=Lines(say=lambda line: None),
    )

small, large = sys.argv[1:]
profile(small, 128)
before_bytes, begin_s = peak_bytes(), time.process_time()
found = profile(large, 2048)
answer = {
    "seconds": time.process_time() - begin_s,
    "grown_bytes": peak_bytes() - before_bytes,
    "num_parameters": found.model.num_parameters,
    "weights_held": sum(l.num_parameters - l.num_tied_parameters for l in found.layers),
    "fastest_s": min(l.forward_s for l in found.layers),
    "flops": sum(l.forward_flops for l in found.layers),
}
print(json.dumps(answer))
"""


def profiled(folder, device, **changes):
    settings = {
        "dtype": "float32",
        "seq_len": 16,
        "microbatch_sizes": (2,),
        "attention": "auto",
        "revision": None,
        "trust_remote_code": False,
        "progress": Lines(say=lambda line: None),
    }
    return profile_model(str(folder), device=device, **{**settings, **changes})


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    return {name: save_model(CONFIGS[name], root / name) for name in CONFIGS}


@pytest.fixture
def no_waiting(monkeypatch):
    """Layers are run for their memory, not for their time."""
    times = LayerTimes(forward_s=2.0, backward_s=3.0, input_grad_s=1.0, weight_grad_s=2)
    monkeypatch.setattr(bench, "time_layer", lambda *_, **__: times)
    monkeypatch.setattr(visit, "num_copies", lambda *_: 1)


BYTES = (
    "activation_bytes",
    "recompute_activation_bytes",
    "output_bytes",
    "forward_peak_bytes",
    "backward_peak_bytes",
    "input_grad_activation_bytes",
    "weight_activation_bytes",
    "weight_grad_activation_bytes",
    "first_backward_peak_bytes",
    "input_grad_peak_bytes",
    "weight_grad_peak_bytes",
    "largest_parameter",
)


@pytest.mark.parametrize("name", FAKE_CONFIGS)
def test_the_card_costs_the_bytes_and_flops_that_the_cpu_measures(
    folders, name, no_waiting, monkeypatch
):
    """In half precision, where both have a fused attention."""
    settings = {"dtype": "bfloat16", "seq_len": 64}
    measured = profiled(folders[name], "cpu", **settings)
    rounded = profiled(folders[name], "rtx3090", **settings)
    monkeypatch.setattr(bench, "CUDA_GRANULARITY", 1)
    computed = profiled(folders[name], "rtx3090", **settings)
    for layer, exact in zip(computed.layers, measured.layers, strict=True):
        assert layer.forward_flops == exact.forward_flops
        # A real embedding looks at its positions: a few integers a token.
        integers_bytes = 4 * 8 * 2 * 64 if layer.kind == "embedding" else 64
        for figure in BYTES:
            bytes_ = getattr(exact, figure)
            expected = pytest.approx(bytes_, rel=0.01, abs=integers_bytes)
            assert getattr(layer, figure) == expected, (layer.name, figure)
    for layer, exact in zip(rounded.layers, computed.layers, strict=True):
        assert layer.activation_bytes % 512 == 0
        assert layer.activation_bytes >= exact.activation_bytes
    assert all(layer.forward_s > 0 for layer in computed.layers)
    assert computed.ties == measured.ties
    assert computed.model == measured.model


def test_the_layers_of_a_tied_llama_add_up(tmp_path, no_waiting):
    config = llama_config(num_hidden_layers=3)
    profile = profiled(save_model(config, tmp_path / "model"), "cpu")
    names = [layer.name for layer in profile.layers]
    assert names == ["embedding", *(f"model.layers.{i}" for i in range(3)), "head"]
    assert profile.ties == (("embedding", "head"),)
    embedding, *blocks, head = profile.layers
    assert {block.kind for block in blocks} == {"LlamaDecoderLayer"}
    words = 256 * 32
    assert embedding.num_parameters == embedding.num_tied_parameters == words
    assert head.num_parameters == words + 32, "the tied matrix and the last norm"
    assert head.num_tied_parameters == words
    # q, k, v, o, three of the feed-forward, two norms.
    block = 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64 + 2 * 32
    assert [layer.num_parameters for layer in blocks] == [block] * 3
    assert profile.model.num_parameters == words + 3 * block + 32
    assert profile.model.architecture == "LlamaForCausalLM"
    assert embedding.output_bytes == blocks[0].output_bytes == 2 * 16 * 32 * 4
    assert head.output_bytes == 4, "the loss"


def test_each_distinct_layer_is_visited_once_per_size(folders, no_waiting, monkeypatch):
    visited = []
    real = layer_building.build_stage

    def spy(source, chain, recipe, **settings):
        visited.append(chain.layers[recipe.first].name)
        assert recipe.first == recipe.last, "one layer at a time"
        return real(source, chain, recipe, **settings)

    monkeypatch.setattr(layer_building, "build_stage", spy)
    lines = []
    profile = profiled(
        folders["llama"],
        "cpu",
        microbatch_sizes=(2, 1),
        progress=Lines(say=lines.append),
    )
    assert visited == ["model.layers.0", "embedding", "head"] * 2
    assert len(profile.layers) == 4
    assert lines[1:3] == [
        "profiling model.layers.0 (2 x LlamaDecoderLayer), 1 x 16 tokens",
        "profiling embedding (1 x embedding), 1 x 16 tokens",
    ]


def test_half_the_microbatch_has_half_the_activations(folders, no_waiting):
    profile = profiled(folders["llama"], "cpu", microbatch_sizes=(4, 2))
    assert profile.microbatch_size == 4
    assert profile.microbatch_sizes == (2, 4)
    for large, small in zip(profile.layers, profile.layers_at(2), strict=True):
        if small.kind != "embedding":  # at most rotary, the same for all rows
            assert small.forward_flops * 2 == pytest.approx(
                large.forward_flops, rel=0.001
            )
        assert small.activation_bytes * 2 == pytest.approx(
            large.activation_bytes, rel=0.01
        )
        assert small.num_parameters == large.num_parameters


def test_a_measured_profile_describes_this_machine(folders, monkeypatch):
    monkeypatch.setattr(sampling, "_BUDGET_S", 0.1)
    threads = torch.get_num_threads()
    profile = profiled(folders["llama"], "cpu")
    assert torch.get_num_threads() == threads
    device = profile.device
    assert (device.name, device.kind, device.type) == ("cpu", "measured", "cpu")
    assert device.memory_bytes > 2**28
    assert device.step_overhead_s >= 0
    assert set(device.optimizer_s_per_parameter) == {"adamw", "sgd"}
    assert all(seconds > 0 for seconds in device.optimizer_s_per_parameter.values())
    for block in profile.layers[1:-1]:
        assert block.forward_s > 0
        assert block.backward_s > 0
        assert block.input_grad_s > 0
        assert block.weight_grad_s > 0
        assert block.forward_spread > 0


def test_an_analytic_profile_describes_the_card_and_is_the_same_every_time(folders):
    profile = profiled(folders["mixtral"], "RTX 3090", dtype="bfloat16")
    card = card_named("rtx3090")
    device = profile.device
    assert (device.name, device.kind, device.type) == ("rtx3090", "analytic", "cuda")
    assert device.memory_bytes == card.memory_bytes
    assert device.step_overhead_s == 0
    again = profiled(folders["mixtral"], "rtx3090", dtype="bfloat16")
    assert again.layers == profile.layers
    assert again.device == device


@pytest.fixture
def no_card(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_without_a_card_auto_computes_for_one_and_says_so(folders, no_card):
    lines = []
    profile = profiled(folders["llama"], "auto", progress=Lines(say=lines.append))
    assert profile.device.name == "rtx3090"
    assert lines[0] == "no CUDA card here: computing for the catalogue's rtx3090"


def test_cuda_without_a_card_is_refused_with_the_way_out(folders, no_card):
    with pytest.raises(WishError, match=r"--device cpu, .* --device rtx3090"):
        profiled(folders["llama"], "cuda")


def test_an_unknown_card_is_refused_with_the_nearest_names(folders):
    with pytest.raises(WishError, match=r"unknown card 'rtx30'; the nearest are rtx30"):
        profiled(folders["llama"], "rtx30")


def test_a_dtype_that_the_card_lacks_is_refused(folders):
    with pytest.raises(WishError, match="v100-16gb has no bfloat16, only float32"):
        profiled(folders["llama"], "v100", dtype="bfloat16")
    profile = profiled(folders["llama"], "v100", dtype="float32")
    assert (profile.device.name, profile.dtype) == ("v100-16gb", "float32")


@pytest.mark.parametrize("name", CONFIGS)
def test_a_sequence_longer_than_the_model_takes_is_refused(folders, name):
    with pytest.raises(
        WishError, match="at most 128 tokens, not 129; use --seq-len 128"
    ):
        profiled(folders[name], "rtx3090", seq_len=129)


def test_a_billion_parameters_take_seconds_and_hardly_any_memory(folders, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(BILLION))
    command = [sys.executable, "-c", SCRIPT, str(folders["llama"]), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    num_parameters = answer["num_parameters"]
    assert 1.0e9 < num_parameters < 1.3e9
    # The tied matrix is held twice and counted once in all.
    assert answer["weights_held"] + 32000 * 4096 == num_parameters
    # Attention adds a little to two FLOPs a parameter and token.
    assert answer["flops"] == pytest.approx(2 * num_parameters * 2048, rel=0.15)
    assert answer["fastest_s"] > 0
    assert answer["seconds"] < 60
    # One block alone would be 436 MB, the model 2.4 GB.
    assert answer["grown_bytes"] < 100e6


# --- memory -------------------------------------------------------------------


@pytest.fixture
def short_of_memory(monkeypatch):
    """The embedding finds no memory for more rows than are given."""

    def at_most(num_rows):
        real = layer_building.stage_run

        def stage_run(stage, received, rows):
            whole = real(stage, received, rows)
            if len(rows["input_ids"]) > num_rows and not received:
                raise torch.OutOfMemoryError
            return whole

        monkeypatch.setattr(layer_building, "stage_run", stage_run)

    return at_most


class Told:
    def __init__(self):
        self.lines, self.steps = [], []

    def say(self, line):
        self.lines.append(line)

    def step(self, what, done, total):
        self.steps.append((done, total))


def test_sizes_that_do_not_fit_are_left_out(folders, no_waiting, short_of_memory):
    short_of_memory(2)
    told = Told()
    profile = profiled(
        folders["llama"], "cpu", microbatch_sizes=(4, 2, 1, 8), progress=told
    )
    assert profile.microbatch_size == 2, "the first asked for that fits"
    assert profile.microbatch_sizes == (1, 2)
    (line,) = [line for line in told.lines if "does not fit" in line]
    assert line.startswith("embedding (embedding) at 4 x 16 tokens does not fit on cpu")
    assert line.endswith("left out: microbatch size 4, 8")
    assert told.steps[-1] == (8, 8), "two whole visits and two layers of the third"


def test_a_smaller_size_is_found_where_none_asked_for_fits(
    folders, no_waiting, short_of_memory
):
    short_of_memory(1)
    told = Told()
    profile = profiled(folders["llama"], "cpu", microbatch_sizes=(2,), progress=told)
    assert (profile.microbatch_size, profile.microbatches) == (1, {})
    assert told.steps[-1] == (5, 5)


def test_a_layer_that_never_fits_is_named(folders, no_waiting, short_of_memory):
    short_of_memory(0)
    with pytest.raises(ModelError, match=r"^embedding .* at 1 x 16 tokens does not"):
        profiled(folders["llama"], "cpu", microbatch_sizes=(2,))


def test_another_error_is_not_taken_for_one_of_memory(folders, monkeypatch):
    monkeypatch.setattr(layer_building, "stage_run", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        profiled(folders["llama"], "cpu")


@pytest.mark.parametrize("num_rows", [2, 1])
def test_nothing_of_a_layer_is_alive_when_the_next_is_built(
    folders, no_waiting, monkeypatch, short_of_memory, num_rows
):
    short_of_memory(num_rows)
    alive = []
    real = layer_building.build_stage

    def build_stage(*args, **settings):
        assert [ref() for ref in alive] == [None] * len(alive)
        stage = real(*args, **settings)
        alive.extend(map(weakref.ref, stage.owned_parameters().values()))
        return stage

    monkeypatch.setattr(layer_building, "build_stage", build_stage)
    profile = profiled(folders["llama"], "cpu", microbatch_sizes=(2,))
    assert profile.microbatch_size == num_rows
    assert len(alive) > 10
    assert [ref() for ref in alive] == [None] * len(alive)


# --- inputs -------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool]
)
def test_what_a_layer_is_given_is_not_all_zeros(dtype):
    like = Crossing(shape=(4, 16), dtype=dtype, requires_grad=False)
    made = layer_building._random(like, torch.device("cpu"))
    assert (made.shape, made.dtype) == (like.shape, dtype)
    assert made.any()
    if dtype.is_floating_point:
        assert made.unique().numel() > 30


def test_a_layer_of_a_model_is_given_random_tokens_and_states(
    folders, no_waiting, monkeypatch
):
    seen = []
    real = layer_building.stage_run

    def stage_run(stage, received, rows):
        seen.extend([*received, rows["input_ids"]])
        return real(stage, received, rows)

    monkeypatch.setattr(layer_building, "stage_run", stage_run)
    profiled(folders["llama"], "cpu")
    assert len(seen) == 5
    assert all(tensor.unique().numel() > 8 for tensor in seen)


@pytest.mark.transformers5
def test_a_block_whose_backward_cannot_be_parted_is_timed_without_i_and_w(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(sampling, "_BUDGET_S", 0.02)
    folder = save_model(tiny_config("gemma3n_text"), tmp_path / "gemma3n")
    profile = profiled(folder, "cpu", microbatch_sizes=(1,))
    block = profile.layers[1]
    assert block.backward_s > 0
    assert (block.input_grad_s, block.weight_grad_s, block.weight_activation_bytes) == (
        0,
        0,
        0,
    )
