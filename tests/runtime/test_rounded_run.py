"""bfloat16 weights that are rounded at random are the same under every cut."""

from dataclasses import replace

import pytest
import torch
from model_folders import llama_config, save_model
from plan_maker import make_plan
from runs import run_job, saved_state
from safetensors.torch import load_file

from planner.run_record import load_metrics
from planner.runtime.options import RunOptions

LLAMA = ["embedding", *(f"model.layers.{i}" for i in range(4)), "head"]


def test_weights_rounded_at_random_do_not_depend_on_the_cut(processes, tmp_path):
    # A run whose copies of the tied embedding drift apart stops with an error.
    folder = save_model(llama_config(num_hidden_layers=4), tmp_path / "tied")
    found = []
    for number, counts in enumerate([[6], [2, 4], [2, 2, 2]]):
        plan = replace(
            make_plan(folder, LLAMA, counts, optimizer="adamw-bf16"), dtype="bfloat16"
        )
        options = RunOptions(output_dir=tmp_path / f"run-{number}", lr=1e-3, steps=4)
        run_job(processes, plan, options, tmp_path / f"work-{number}")
        losses = [entry.loss for entry in load_metrics(options.output_dir)]
        found.append((losses, saved_state(options.output_dir)))
    (losses, state), *others = found
    assert losses[-1] < losses[0]
    before = load_file(folder / "model.safetensors")
    for other_losses, other in others:
        assert other_losses == pytest.approx(losses, rel=2e-3)
        for key, value in state.items():
            moved = (value.float() - before[key].float()).norm()
            assert (other[key].float() - value.float()).norm() < 0.5 * moved, key
            assert other[key].dtype == torch.bfloat16
