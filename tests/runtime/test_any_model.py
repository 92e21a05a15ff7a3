"""Models that hand on more than a hidden state, split over processes.

Rows are padded on the left by different lengths, and labels are ignored unevenly,
so that every stage needs the mask and no microbatch is as heavy as another.
"""

import json
from functools import cache
from itertools import pairwise

import pytest
import torch
from model_folders import save_model
from one_process import mean_loss, own_losses, train_unsplit
from plan_maker import make_plan
from runs import run_job, saved_state
from transformers import AutoModelForCausalLM

from planner.chain.layers import find_chain
from planner.chain.source import open_source
from planner.chain.tiny import tiny_config
from planner.run_record import load_metrics
from planner.runtime.options import RunOptions

NUM_STEPS = 2
SEQ_LEN = 16


def with_balance_loss(model_type):
    config = tiny_config(model_type)
    config.output_router_logits = True
    config.router_aux_loss_coef = 0.5
    return config


CONFIGS = {
    "mixtral": lambda: with_balance_loss("mixtral"),
    "zaya": lambda: tiny_config("zaya"),  # a residual travels beside the hidden state
    "gemma3_text": lambda: tiny_config("gemma3_text"),  # sliding and full attention
    "gemma3n_text": lambda: tiny_config("gemma3n_text"),  # ten extras, illegal cuts
    "zamba2": lambda: tiny_config("zamba2"),  # state spaces, a shared block, an extra
}


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """A model's folder, made when it is first asked for."""
    root = tmp_path_factory.mktemp("models")
    return cache(lambda name: save_model(CONFIGS[name](), root / name))


@pytest.fixture
def lines(tmp_path):
    generator = torch.Generator().manual_seed(0)
    path = tmp_path / "lines.jsonl"
    with path.open("w") as file:
        for row in range(8):
            ids = torch.randint(3, 224, (SEQ_LEN,), generator=generator).tolist()
            padding = row % 4
            mask = [0] * padding + [1] * (SEQ_LEN - padding)
            labels = [-100] * (padding + row) + ids[padding + row :]
            line = {"input_ids": ids, "attention_mask": mask, "labels": labels}
            file.write(json.dumps(line) + "\n")
    return path


def spread(cuts, number):
    """Some of the legal cuts, far from each other."""
    return [cuts[(i + 1) * len(cuts) // (number + 1)] for i in range(number)]


# transformers 4 has no zaya, and does not save a block that has two places.
CASES = [
    ("mixtral", 2, "1f1b", ()),
    ("mixtral", 4, "1f1b", ("model.layers.1", "model.layers.2")),
    pytest.param("zaya", 3, "1f1b", (), marks=pytest.mark.transformers5),
    ("gemma3_text", 4, "gpipe", ()),
    ("gemma3n_text", 2, "1f1b", ()),
    pytest.param("zamba2", 3, "1f1b", (), marks=pytest.mark.transformers5),
]


@pytest.mark.parametrize(("name", "num_stages", "schedule", "recompute"), CASES)
def test_losses_norms_and_weights_equal_one_process(
    processes, folder_of, lines, tmp_path, name, num_stages, schedule, recompute
):
    folder = folder_of(name)
    chain = find_chain(open_source(str(folder)), attention="auto")
    ends = [*spread(chain.cuts, num_stages - 1), len(chain.layers) - 1]
    counts = [end - start for start, end in pairwise([-1, *ends])]
    plan = make_plan(
        folder,
        chain.names,
        counts,
        schedule=schedule,
        recompute=recompute,
        seq_len=SEQ_LEN,
        attention=chain.attention,
    )
    options = RunOptions(
        output_dir=tmp_path / "run", data=str(lines), lr=1e-3, steps=NUM_STEPS
    )
    job = run_job(processes, plan, options, tmp_path / "work")

    assert chain.adds_loss == (name == "mixtral")
    losses, norms, state = train_unsplit(
        folder,
        job.sequences(),
        options,
        num_steps=NUM_STEPS,
        batch_size=4,
        loss_of=own_losses if chain.adds_loss else mean_loss,
    )
    metrics = load_metrics(options.output_dir)
    assert [m.loss for m in metrics] == pytest.approx(losses, rel=1e-5)
    assert [m.grad_norm for m in metrics] == pytest.approx(norms, rel=1e-4)
    model = AutoModelForCausalLM.from_pretrained(
        options.output_dir / "model", dtype=torch.float32
    )
    for key, value in model.state_dict().items():
        assert (value - state[key]).norm() <= 1e-4 * state[key].norm(), key
    assert saved_state(options.output_dir)


def test_the_balance_loss_is_a_part_of_the_loss(folder_of):
    """What the test above compares is not zero."""
    model = AutoModelForCausalLM.from_pretrained(folder_of("mixtral")).train()
    ids = torch.arange(3, 3 + SEQ_LEN)[None]
    with torch.no_grad():
        output = model(input_ids=ids, labels=ids)
        plain = model(input_ids=ids, labels=ids, output_router_logits=False)
    assert output.loss - plain.loss == pytest.approx(0.5 * output.aux_loss.item())
    assert output.aux_loss > 1
