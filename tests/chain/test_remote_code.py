"""A folder that brings its own modelling code."""

import json
import shutil
from itertools import count
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from planner.chain.layers import find_chain
from planner.chain.parity import compare, make_inputs, run_unsplit
from planner.chain.source import build_model, open_source
from planner.chain.stages import StageRecipe, build_stage
from planner.errors import ModelError

PEBBLE = Path(__file__).parents[1] / "remote_model"
NUMBERS = count()
LAST_LAYERS = [[0], [1], [2], [3], [4], [0, 2], [0, 2, 4]]


@pytest.fixture
def pebble(tmp_path):
    """A copy of the model's folder with other settings."""

    def make(**changes):
        # transformers takes folders of one name for one model.
        folder = shutil.copytree(PEBBLE, tmp_path / f"pebble{next(NUMBERS)}")
        settings = json.loads((folder / "config.json").read_text())
        changed = {**settings, "gate_noise": 0.0, "balance_loss_weight": 0.0, **changes}
        (folder / "config.json").write_text(json.dumps(changed))
        return folder

    return make


def open_pebble(folder):
    return open_source(str(folder), trust_remote_code=True)


def worst_difference(folder):
    source = open_pebble(folder)
    chain = find_chain(source, attention="auto")
    assert chain.cuts == (0, 1, 2, 3, 4)
    assert chain.adds_loss  # also where it is zero
    reference = run_unsplit(source, chain, make_inputs(256), attention="auto")
    found = [
        compare(source, chain, reference, x, attention="auto") for x in LAST_LAYERS
    ]
    return max(found, key=lambda x: max(x.loss, x.gradient))


def test_its_code_does_not_run_unasked():
    with pytest.raises(ModelError, match=r"brings its own.*--trust-remote-code"):
        open_source(str(PEBBLE))


def test_every_cut_gives_the_numbers_of_the_unsplit_model(pebble):
    assert worst_difference(pebble()).is_exact


def test_the_balance_losses_of_the_blocks_add_up_under_every_cut(pebble):
    assert worst_difference(pebble(balance_loss_weight=0.5)).is_exact


def test_a_recompute_of_its_own_is_left_to_the_plan(pebble):
    folder = pebble(gradient_checkpointing=True)
    assert worst_difference(folder).is_exact
    model = build_model(open_pebble(folder), dtype=torch.float32, attention="auto")
    assert not model.model.gradient_checkpointing


def test_noise_in_the_gate_is_drawn_on_each_stage(pebble):
    source = open_pebble(pebble(gate_noise=1.0))
    chain = find_chain(source, attention="auto")
    reference = run_unsplit(source, chain, make_inputs(256), attention="auto")
    # One process draws in the order of the blocks, however they are cut.
    assert compare(source, chain, reference, [1, 3], attention="auto").is_exact


# --- weights ------------------------------------------------------------------


def save_weights(folder):
    source = open_pebble(folder)
    torch.manual_seed(0)
    model = build_model(source, dtype=torch.float32, attention="auto")
    save_file(model.state_dict(), folder / "model.safetensors")
    return source


def load_stage(source, first, last):
    chain = find_chain(source, attention="auto")
    recipe = StageRecipe(first=first, last=last, dtype="float32", attention="auto")
    return build_stage(source, chain, recipe, device=torch.device("cpu"), seed=None)


def test_its_weights_are_loaded_as_transformers_loads_them(pebble):
    folder = pebble()
    stage = load_stage(save_weights(folder), 1, 3)
    whole = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
    for name, parameter in stage.owned_parameters().items():
        assert torch.equal(parameter, whole.get_parameter(name)), name
    assert len([n for n in stage.owned_parameters() if ".experts." in n]) == 3 * 3 * 4


def test_a_weight_that_the_checkpoint_does_not_fill_is_named(pebble):
    folder = pebble()
    source = save_weights(folder)
    path = folder / "model.safetensors"
    kept = {k: v for k, v in load_file(path).items() if "layers.2.sparse.gate" not in k}
    save_file(kept, path)
    named = r"does not hold 2 .*layers\.2\.sparse\.gate\.choice.*gate\.spread"
    with pytest.raises(ModelError, match=named):
        load_stage(source, 1, 3)
    load_stage(source, 0, 2)  # without that block


# --- code that cannot be imported -----------------------------------------------


def with_line(folder, line, file="modeling_pebble.py"):
    path = folder / file
    path.write_text(
        path.read_text().replace("import torch\n", f"import torch\n{line}\n")
    )
    if file.startswith("configuration"):
        path.write_text(f"{line}\n{path.read_text()}")
    return folder


def import_error_of(folder):
    with pytest.raises(ModelError) as caught:
        build_model(open_pebble(folder), dtype=torch.float32, attention="auto")
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert str(folder) in message
    return message


@pytest.mark.parametrize("file", ["modeling_pebble.py", "configuration_pebble.py"])
def test_a_module_that_transformers_no_longer_has(pebble, monkeypatch, file):
    monkeypatch.setattr(transformers, "__version__", "5.24.0")
    line = "from transformers.modeling_gone import something"
    message = import_error_of(with_line(pebble(), line, file))
    assert "transformers.modeling_gone, which transformers 5.24.0 does not" in message
    assert message.endswith("pip install 'transformers>=4.57,<5'")


def test_a_name_that_transformers_no_longer_has(pebble, monkeypatch):
    monkeypatch.setattr(transformers, "__version__", "5.24.0")
    line = "from transformers.utils import gone_for_good"
    message = import_error_of(with_line(pebble(), line))
    assert "needs transformers.utils.gone_for_good, which" in message
    assert message.endswith("pip install 'transformers>=4.57,<5'")


def test_code_for_a_newer_transformers(pebble, monkeypatch):
    monkeypatch.setattr(transformers, "__version__", "4.57.6")
    line = "from transformers.modeling_new import something"
    message = import_error_of(with_line(pebble(), line))
    assert message.endswith("a newer one: pip install 'transformers>=5,<6'")


def test_a_package_that_is_not_installed(pebble):
    message = import_error_of(with_line(pebble(), "import no_such_package.part"))
    assert "needs no_such_package, which is not installed here" in message
    assert message.endswith(": pip install no_such_package")


def test_a_model_too_large_to_run_is_watched_as_a_narrow_copy(pebble, monkeypatch):
    """It looks at values, so fake tensors do not do."""
    folder = pebble(hidden_size=96, num_attention_heads=6, expert_size=40)
    source = open_pebble(folder)
    monkeypatch.setattr("planner.chain.observe.even_counts", lambda *_, **__: None)
    expected = find_chain(source, attention="auto", shape=(2, 12))
    monkeypatch.setattr("planner.chain.watched._SMALL", 0)
    found = find_chain(source, attention="auto", shape=(2, 12))
    assert found == expected
    assert found.crossing(2, dtype=torch.float32)[0].shape == (2, 12, 96)


def test_experts_that_saw_no_token_have_no_gradient_on_any_stage(pebble):
    source = open_pebble(pebble(num_experts=48, balance_loss_weight=0.5))
    chain = find_chain(source, attention="auto")
    reference = run_unsplit(source, chain, make_inputs(256), attention="auto")
    idle = [name for name, grad in reference.gradients.items() if grad is None]
    assert any("experts" in name for name in idle)
    found = compare(source, chain, reference, [1, 3], attention="auto")
    assert found.is_exact
