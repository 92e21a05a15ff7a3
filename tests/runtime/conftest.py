import json

import pytest
import torch
from process_group import Processes


@pytest.fixture(scope="session")
def processes():
    group = Processes(4)
    yield group
    group.close()


@pytest.fixture
def lines(tmp_path):
    """Rows of unequal length with unevenly ignored labels: nothing averages out."""
    generator = torch.Generator().manual_seed(0)
    path = tmp_path / "lines.jsonl"
    with path.open("w") as file:
        for row in range(10):
            ids = torch.randint(0, 256, (6 + row,), generator=generator).tolist()
            labels = [-100] * (row // 2) + ids[row // 2 :]
            file.write(json.dumps({"input_ids": ids, "labels": labels}) + "\n")
    return path
