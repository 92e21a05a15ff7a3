"""A real pretrained model, split: SmolLM2-135M-Instruct."""

import json
import subprocess
import sys

import pytest
import torch
from model_folders import smollm2_folder
from one_process import train_unsplit
from plan_maker import make_plan
from runs import run_job
from transformers import AutoModelForCausalLM, AutoTokenizer

from planner.run_record import load_metrics
from planner.runtime.options import RunOptions

pytestmark = pytest.mark.timeout(900)

LAYERS = ["embedding", *(f"model.layers.{i}" for i in range(30)), "head"]
TEXT = "The quick brown fox jumps over the lazy dog while the cat sleeps. " * 12


@pytest.fixture(scope="module")
def folder():
    return smollm2_folder()


def says(folder):
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompt = tokenizer("The capital of France is", return_tensors="pt")
    output = model.generate(**prompt, max_new_tokens=3, do_sample=False)
    return tokenizer.decode(output[0, prompt.input_ids.shape[1] :])


def test_the_weights_are_right(folder):
    assert says(folder).startswith(" Paris")


def test_two_stages_train_as_one_process_does(processes, folder, tmp_path):
    data = tmp_path / "text.txt"
    data.write_text(TEXT)
    plan = make_plan(folder, LAYERS, [20, 12], num_microbatches=3, seq_len=48)
    options = RunOptions(output_dir=tmp_path / "run", data=str(data), lr=1e-4, steps=2)
    job = run_job(processes, plan, options, tmp_path / "work")

    losses, norms, state = train_unsplit(
        folder, job.sequences(), options, num_steps=2, batch_size=3
    )
    metrics = load_metrics(options.output_dir)
    assert [m.loss for m in metrics] == pytest.approx(losses, rel=1e-4)
    assert [m.grad_norm for m in metrics] == pytest.approx(norms, rel=1e-4)
    model = AutoModelForCausalLM.from_pretrained(
        options.output_dir / "model", dtype=torch.float32
    )
    for key, value in model.state_dict().items():
        assert (value - state[key]).norm() <= 1e-4 * state[key].norm(), key


def test_it_still_says_paris_after_a_step_of_nothing(processes, folder, tmp_path):
    data = tmp_path / "text.txt"
    data.write_text(TEXT)
    plan = make_plan(folder, LAYERS, [12, 11, 9], num_microbatches=3, seq_len=32)
    options = RunOptions(output_dir=tmp_path / "run", data=str(data), lr=0.0, steps=1)
    run_job(processes, plan, options, tmp_path / "work")
    assert says(options.output_dir / "model").startswith(" Paris")


LOAD_A_STAGE = """
import json, resource, sys, torch
from planner.chain.layers import find_chain
from planner.chain.source import open_source
from planner.chain.stages import StageRecipe, build_stage

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

source = open_source(sys.argv[1])
chain = find_chain(source, attention="sdpa")
recipe = StageRecipe(first=9, last=16, dtype="float32", attention="sdpa")
before = peak()
stage = build_stage(source, chain, recipe, device=torch.device("cpu"), seed=None)
held = sum(p.nbytes for p in stage.owned_parameters().values())
print(json.dumps({"grown": peak() - before, "held": held}))
"""


def test_a_process_loads_its_own_stage_only(folder):
    command = [sys.executable, "-c", LOAD_A_STAGE, str(folder)]
    done = subprocess.run(command, capture_output=True, check=True, timeout=300)
    found = json.loads(done.stdout)
    whole = (folder / "model.safetensors").stat().st_size
    assert found["held"] == pytest.approx(8 * 3.54e6 * 4, rel=0.01)
    # The stage's tensors, as mapped pages of the file and as parameters.
    assert found["grown"] < 2.2 * found["held"] < 0.5 * whole
