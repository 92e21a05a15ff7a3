"""Every order of actions leaves the gradients of one process.

The loss alone proves nothing: without the exchange of a tie it is still right, and
the gradient of the embedding wrong by 100 %. Rows are padded and labels ignored
unevenly, so every stage needs its mask and no microbatch is as heavy as another.
"""

from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from model_folders import llama_config, save_model
from one_step import make_jobs, one_process, run_jobs
from plan_maker import make_plan

from planner.runtime.data import Sequences
from planner.runtime.options import RunOptions
from planner.schedule.named import SCHEDULES

SEQ_LEN = 8
BLOCKS = [f"model.layers.{i}" for i in range(6)]
LAYERS = ["embedding", *BLOCKS, "head"]
COUNTS = {2: [5, 3], 3: [2, 3, 3], 4: [2, 2, 3, 1], 6: [1, 2, 1, 1, 2, 1], 8: [1] * 8}

# Orders that no named schedule has, on few devices and with kinds mixed.
BY_HAND = {
    # Microbatches overtake each other, and B stands beside I and W.
    "overtaking": (
        "0F1 0F0 3F1 3I1 3F0 3B0 0F2 0F3 0B1 3W1 3F3 3B3 3F2 3I2 0I0 0B3 0W0 0B2 3W2",
        "1F1 2F1 1F0 2F0 2B1 1I1 2I0 1B0 1F2 1F3 2F3 2F2 1W1 2W0 2B3 1B3 2B2 1B2",
    ),
    # Three stages on two devices, two of them neighbours.
    "uneven": (
        "0F0 0F1 1F0 1F1 0F2 1F2 0F3 1F3 1I0 0B0 1W0 1B1 0I1 1B2 0B2 1I3 0B3 1W3 0W1",
        "2F0 2B0 2F1 2I1 2F2 2B2 2W1 2F3 2B3",
    ),
    # The last stage on the first device, one device with a single stage.
    "crossed": (
        "0F0 0F1 2F0 2B0 2F1 2I1 0B0 2W1 0F2 0F3 0I1 2F2 2B2 2F3 2B3 0B2 0B3 0W1",
        "1F0 1F1 1B0 1I1 1F2 1F3 1W1 1B2 1B3",
    ),
}
HAND_COUNTS = {"overtaking": [2, 2, 3, 1], "uneven": [2, 3, 3], "crossed": [3, 3, 2]}

CASES = [
    *product(SCHEDULES, (2, 3, 4), (False, True), ("tied", "untied")),
    *product(BY_HAND, (2,), (False, True), ("tied", "untied")),
]


def plan_of(folder, name, num_devices, recompute):
    settings = {
        "recompute": BLOCKS[1:] if recompute else (),
        "seq_len": SEQ_LEN,
        "optimizer": "sgd",
    }
    if name in BY_HAND:
        actions, counts = BY_HAND[name], HAND_COUNTS[name]
        return make_plan(folder, LAYERS, counts, actions=actions, **settings)
    return make_plan(
        folder,
        LAYERS,
        COUNTS[num_devices * SCHEDULES[name].min_stages_per_device],
        schedule=name,
        num_devices=num_devices,
        num_microbatches=2 * num_devices,
        **settings,
    )


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    small = {"hidden_size": 16, "intermediate_size": 24, "vocab_size": 64}
    return {
        name: save_model(
            llama_config(**small, tie_word_embeddings=name == "tied"), root / name
        )
        for name in ("tied", "untied")
    }


@pytest.fixture(scope="module")
def sequences():
    torch.manual_seed(0)
    ids = torch.randint(1, 64, (8, SEQ_LEN))
    padding = (torch.arange(8) % 4)[:, None] > torch.arange(SEQ_LEN)
    ignored = padding | ((torch.arange(8) % 5)[:, None] > torch.arange(SEQ_LEN))
    return Sequences(
        input_ids=ids,
        labels=ids.masked_fill(ignored, -100),
        attention_mask=(~padding).long(),
        has_padding=True,
    )


@pytest.fixture(scope="module")
def found(processes, folders, sequences, tmp_path_factory):
    """All cases of as many devices, run when the first of them is asked for."""
    options = RunOptions(output_dir=tmp_path_factory.mktemp("run"))

    @cache
    def run(num_devices):
        cases = [case for case in CASES if case[1] == num_devices]
        plans = [plan_of(folders[tied], name, n, r) for name, n, r, tied in cases]
        jobs = make_jobs(plans, sequences, options, tmp_path_factory.mktemp("work"))
        by_device = processes.call(run_jobs, jobs, num_devices)
        return dict(zip(cases, zip(*by_device, strict=True), strict=True))

    return run


@pytest.fixture(scope="module")
def expected(folders, sequences):
    return cache(lambda tied, size: one_process(folders[tied], sequences, size))


@pytest.mark.parametrize(("name", "num_devices", "recompute", "tied"), CASES)
def test_gradients_equal_one_process(
    found, expected, name, num_devices, recompute, tied
):
    by_device = found(num_devices)[name, num_devices, recompute, tied]
    size = 4 if name in BY_HAND else 2 * num_devices
    loss, gradients = expected(tied, size)
    norm = torch.stack([g.norm() for g in gradients.values()]).norm().item()

    assert len(by_device) == num_devices
    seen = set()
    for found_loss, found_norm, device_gradients in by_device:
        assert found_loss == pytest.approx(loss, rel=1e-5)
        assert found_norm == pytest.approx(norm, rel=1e-5), "a tie is counted once"
        for key, gradient in device_gradients.items():
            seen.add(key)
            right = gradients[key].numpy()
            wrong = np.linalg.norm(gradient - right) / np.linalg.norm(right)
            assert wrong < 1e-5, f"{key} differs by {wrong:.0%}"
    assert seen == gradients.keys()
