"""Where there are no values to count, all numbers occur equally often."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from planner.chain.even_counts import even_counts
from planner.measure.fake_tensors import fake_tensors


@pytest.mark.parametrize(("length", "counts"), [(8, [2, 2, 2, 2]), (6, [2, 2, 1, 1])])
def test_every_number_occurs_as_often(length, counts):
    with FakeTensorMode():
        found = even_counts(torch.zeros(length, dtype=torch.long), minlength=4)
        assert not isinstance(found, FakeTensor)
        assert found.tolist() == counts


def test_without_a_length_nothing_can_be_told():
    assert even_counts(torch.zeros(3)) is None
    assert even_counts(torch.zeros(3), torch.ones(3), 4) is None


def test_rows_can_be_cut_by_the_counts():
    with fake_tensors():
        chosen, rows = torch.zeros(10, dtype=torch.long), torch.zeros(10, 3)
        load = chosen.bincount(minlength=4)
        shares = rows.split(load.tolist())
        assert [len(share) for share in shares] == [3, 3, 2, 2]
