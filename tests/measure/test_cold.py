"""Copies and stopwatches that keep a layer from the cache."""

import pytest
import torch
from layer_runs import module_run
from torch import nn

from planner.measure.cold import ColdStopwatch, num_copies, stopwatch_for
from planner.measure.stopwatch import Stopwatch
from planner.units import MIB

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("layer_bytes", "num_alike", "expected"),
    [
        (28 * MIB, 30, 10),
        (28 * MIB, 4, 4),
        (1, 100, 16),
        (300 * MIB, 30, 1),
        (256 * MIB, 30, 1),
        (255 * MIB, 30, 2),
        (0, 30, 1),
    ],
)
def test_a_row_is_longer_than_the_cache_but_than_no_stage(
    layer_bytes, num_alike, expected
):
    assert num_copies(layer_bytes, num_alike) == expected


@pytest.mark.parametrize(
    ("width", "kind"), [(16, Stopwatch), (1024, ColdStopwatch), (6000, Stopwatch)]
)
def test_what_may_stay_in_a_cache_is_pushed_out_of_it(width, kind):
    run = module_run(nn.Linear(width, width), (1, width))
    assert type(stopwatch_for(run, CPU)) is kind


def test_a_cold_stopwatch_tells_what_every_other_one_tells():
    watch = ColdStopwatch(CPU)
    watch.begin_step()
    assert [watch.run(name, lambda name=name: name * 2) for name in "FB"] == [
        "FF",
        "BB",
    ]
    first, second = watch.spans()
    assert (first.action, second.action) == ("F", "B")
    assert 0 <= first.start_s <= first.end_s < second.start_s
    # Between them hundreds of megabytes were touched, which is in no span.
    assert second.start_s - first.end_s > first.end_s - first.start_s
