"""A module of the user's own, profiled, planned and trained over processes."""

import json

import pytest
import torch
from click.testing import CliRunner
from plan_maker import make_plan
from runs import run_job, saved_state

from planner.chain.source import build_model, open_source
from planner.cli import main
from planner.errors import DataError
from planner.run_record import load_metrics
from planner.runtime.job import prepare_job
from planner.runtime.options import RunOptions

NUM_STEPS = 3
LAYERS = {
    "Images": ["layer1", "layer2", "layer3", "layer4"],
    "tokens": ["0", "1", "2", "3", "4"],
    "thrice": ["0", "1", "2", "3"],
}
# Four stages on two devices in a V. A tie of the stages 0, 2 and 3 is then inside the
# first device and between the two.
FOLDED = (
    "0F0 3F0 0F1 3I0 0F2 3F1 3W0 0B0 3B1 0B1 3F2 3I2 0F3 3F3 3I3 3W2 0I2 0B3 3W3 0W2",
    "1F0 2F0 1F1 2F1 1F2 2B0 1I0 2F2 1W0 2I1 1B1 2W1 2B2 1B2 1F3 2F3 2B3 1B3",
)


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "lines.jsonl"
    generator = torch.Generator().manual_seed(0)
    with path.open("w") as file:
        for row in range(8):
            ids = torch.randint(0, 256, (6 + row,), generator=generator).tolist()
            file.write(json.dumps({"input_ids": ids}) + "\n")
    return path


@pytest.mark.parametrize(
    ("name", "counts", "order"),
    [
        ("Images", [1, 1, 1, 1], None),
        ("Images", [2, 2], None),
        ("Images", [1, 1, 1, 1], FOLDED),
        ("tokens", [2, 3], None),
        ("thrice", [1, 1, 1, 1], FOLDED),
    ],
)
def test_losses_and_weights_equal_one_process(
    processes, lines, tmp_path, name, counts, order
):
    plan = make_plan(
        f"own_modules:{name}",
        LAYERS[name],
        counts,
        actions=order,
        seq_len=1 if name == "Images" else 16,
        attention="auto",
        microbatch_size=2 if name == "Images" else 1,
    )
    data = "builtin" if name == "Images" else str(lines)
    options = RunOptions(
        output_dir=tmp_path / "run", data=data, lr=1e-2, steps=NUM_STEPS, shuffle=False
    )
    job = run_job(processes, plan, options, tmp_path / "work")

    module, losses = train_unsplit(name, job.sequences(), plan.global_batch_size)
    found = [m.loss for m in load_metrics(options.output_dir)]
    assert found == pytest.approx(losses, rel=1e-5)
    state = saved_state(options.output_dir)
    # These name a tied parameter once.
    expected = dict(module.named_parameters()) | dict(module.named_buffers())
    assert state.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(state[key], value.detach(), rtol=1e-4, atol=1e-5)
    module.load_state_dict(state, strict=name != "thrice")


def train_unsplit(name, rows, batch_size):
    """Three plain steps on the whole module, rows in order."""
    source = open_source(f"own_modules:{name}")
    module = build_model(source, dtype=torch.float32, attention="auto")
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2, weight_decay=0.0)
    tensors, losses = rows.tensors(), []
    for step in range(NUM_STEPS):
        chosen = (torch.arange(batch_size) + step * batch_size) % len(rows)
        batch = {key: value[chosen] for key, value in tensors.items()}
        loss = mean_loss(module, name, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return module, losses


def mean_loss(module, name, batch):
    if name == "Images":
        output = type(module).__mro__[1].forward(module, batch["images"])
        return torch.nn.functional.cross_entropy(output, batch["labels"])
    output = torch.nn.Sequential.forward(module, batch["input_ids"])
    return torch.nn.functional.cross_entropy(
        output[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten()
    )


def test_one_layer_on_each_of_four_cards(tmp_path, monkeypatch):
    """The whole way by the commands, with the module in the current folder."""
    monkeypatch.chdir(tmp_path)
    code = (
        "from torch import nn\n"
        "def make():\n"
        "    parts = [nn.Embedding(256, 16), nn.Linear(16, 16), nn.Tanh()]\n"
        "    return nn.Sequential(*parts, nn.Linear(16, 16), nn.Linear(16, 256))\n"
    )
    (tmp_path / "four_layers.py").write_text(code)
    call(["profile", "four_layers:make", "--device", "cpu", "--seq-len", "16"])
    solve = "solve --gpus 4 --layers-per-stage 1,1,1,1 --global-batch-size 4"
    solved = call([*solve.split(), "-o", "plan.json"])
    assert [line.split()[-1] for line in solved.splitlines() if "  cpu:" in line] == [
        "0",
        "1",
        "3",
        "4",
    ]


def call(arguments):
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_other_data_than_its_own_is_refused(tmp_path):
    plan = make_plan("own_modules:Images", LAYERS["Images"], [2, 2])
    options = RunOptions(output_dir=tmp_path / "run", data="text.txt")
    with pytest.raises(DataError, match=r"trains on what its sample_inputs\(\)"):
        prepare_job(plan, options, tmp_path)
