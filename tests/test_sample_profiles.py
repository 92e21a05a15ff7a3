"""The samples in `profiles/` are what they say, and can be solved."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner.cli import main
from planner.model_profile import load_profile
from planner.plan import load_plan

PROFILES = Path(__file__).parents[1] / "profiles"
CONFIGS = PROFILES / "configs"

# As the makers published them; that of LLaMA-MoE is the stand-in's.
NUM_PARAMETERS = {
    "meta-llama/Llama-2-7b-hf": 6_738_415_616,
    "meta-llama/Llama-3.1-8B": 8_030_261_248,
    "meta-llama/Llama-3.2-1B": 1_235_814_400,
    "meta-llama/Llama-3.2-3B": 3_212_749_824,
    "mistralai/Mistral-7B-v0.1": 7_241_732_096,
    "mistralai/Mixtral-8x7B-v0.1": 46_702_792_704,
    "Qwen/Qwen2.5-1.5B": 1_543_714_304,
    "Qwen/Qwen2.5-3B": 3_085_938_688,
    "Qwen/Qwen2.5-7B": 7_615_616_512,
    "google/gemma-2-2b": 2_614_341_888,
    "llama-moe/LLaMA-MoE-v1-3_5B-2_8": 6_740_512_768,
}


def sample(model_id):
    name = model_id.split("/")[1].lower()
    return PROFILES / f"{name}-rtx3090.json"


def solve(tmp_path, model_id, num_cards, *more):
    out = tmp_path / "plan.json"
    options = ["--gpus", str(num_cards), "-o", str(out), *more]
    return CliRunner().invoke(main, ["solve", str(sample(model_id)), *options]), out


def test_every_sample_has_its_facts_and_every_fact_its_sample():
    of_a_card = {path for path in PROFILES.glob("*.json") if "-cpu" not in path.name}
    facts = (path / "config.json" for path in CONFIGS.iterdir())
    names = {json.loads(path.read_text())["_name_or_path"] for path in facts}
    assert of_a_card == set(map(sample, NUM_PARAMETERS))
    assert names == set(NUM_PARAMETERS)


@pytest.mark.parametrize("model_id", NUM_PARAMETERS)
def test_a_sample_is_of_the_published_model(model_id):
    profile = load_profile(sample(model_id))
    assert profile.model.id == model_id
    assert profile.model.num_parameters == NUM_PARAMETERS[model_id]
    facts = CONFIGS / sample(model_id).stem.removesuffix("-rtx3090") / "config.json"
    num_blocks = json.loads(facts.read_text())["num_hidden_layers"]
    assert len(profile.layers) == num_blocks + 2


@pytest.mark.parametrize("model_id", NUM_PARAMETERS)
def test_a_sample_is_for_one_card_and_small(model_id):
    profile = load_profile(sample(model_id))
    device = profile.device
    assert (device.name, device.kind, device.type) == ("rtx3090", "analytic", "cuda")
    assert (profile.dtype, profile.seq_len) == ("bfloat16", 2048)
    assert profile.microbatch_sizes == (1, 2, 4)
    assert profile.trust_remote_code == ("llama-moe" in model_id)
    assert all(layer.forward_s and layer.backward_s for layer in profile.layers)
    assert sample(model_id).stat().st_size < 150_000


@pytest.mark.parametrize(
    "model_id", ["Qwen/Qwen2.5-3B", "meta-llama/Llama-3.2-1B", "google/gemma-2-2b"]
)
def test_small_models_have_a_plan_for_four_cards(tmp_path, model_id):
    result, out = solve(tmp_path, model_id, 4)
    assert result.exit_code == 0, result.output
    plan = load_plan(out)
    assert plan.model.id == model_id
    assert plan.num_devices == 4
    assert all(card.fits for card in plan.cards)
    _, out = solve(tmp_path, model_id, 4, "--schedule", "1f1b")
    one = load_plan(out)
    assert one.solver.status == "optimal"
    assert plan.predicted.step_s <= one.predicted.step_s


@pytest.mark.parametrize(
    ("model_id", "needs"),
    [
        ("llama-moe/LLaMA-MoE-v1-3_5B-2_8", "100.4 GiB"),
        ("meta-llama/Llama-2-7b-hf", "100.4 GiB"),
        ("meta-llama/Llama-3.1-8B", "119.7 GiB"),
        ("mistralai/Mixtral-8x7B-v0.1", "695.9 GiB"),
    ],
)
def test_large_ones_are_refused_with_what_they_need(tmp_path, model_id, needs):
    result, out = solve(tmp_path, model_id, 4, "--optimizer", "adamw")
    assert result.exit_code == 3
    assert f"nothing fits: needs {needs} for weights" in result.stderr
    assert not out.exists()


def test_llama_moe_has_a_plan_for_four_cards_with_weights_rounded_at_random(tmp_path):
    result, out = solve(tmp_path, "llama-moe/LLaMA-MoE-v1-3_5B-2_8", 4)
    assert result.exit_code == 0, result.output
    assert "8 bytes a parameter, as nothing fits with adamw" in result.output
    plan = load_plan(out)
    assert plan.optimizer.name == "adamw-bf16"
    assert plan.predicted.optimizer_s > 0
    assert all(card.fits for card in plan.cards)


def test_a_model_of_seven_billion_has_a_plan_for_eight_cards(tmp_path):
    result, out = solve(tmp_path, "Qwen/Qwen2.5-7B", 8)
    assert result.exit_code == 0, result.output
    assert load_plan(out).num_devices == 8
