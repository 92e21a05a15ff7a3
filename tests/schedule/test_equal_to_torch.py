"""Our schedules are those of torch.distributed.pipelining, action by action.

The only tests of schedules that import torch. torch's empty places are dropped, for
when an action starts follows from what it waits for.
"""

from types import SimpleNamespace
from unittest import mock

import pytest
from torch.distributed.pipelining import schedules as theirs

from planner.schedule.actions import format_actions
from planner.schedule.named import SCHEDULES, schedule_actions

CLASSES = {
    "gpipe": theirs.ScheduleGPipe,
    "1f1b": theirs.Schedule1F1B,
    "interleaved-1f1b": theirs.ScheduleInterleaved1F1B,
    "looped-bfs": theirs.ScheduleLoopedBFS,
    "zb-h1": theirs.ScheduleInterleavedZeroBubble,
    "interleaved-zb": theirs.ScheduleInterleavedZeroBubble,
    "zb-v": theirs.ScheduleZBVZeroBubble,
    "dualpipe-v": theirs.ScheduleDualPipeV,
}
GRID = [
    (num_devices, num_microbatches, stages_per_device)
    for num_devices in range(1, 7)
    for num_microbatches in (*range(1, 14), 16, 24)
    for stages_per_device in (1, 2, 3, 4)
]


def torch_rows(name, num_devices, num_microbatches, stages_per_device):
    """What torch lists for every device, as text; ValueError if it refuses."""
    stage = SimpleNamespace(
        group_rank=0,
        group_size=num_devices,
        num_stages=num_devices * stages_per_device,
        submod=None,
    )
    single = issubclass(CLASSES[name], theirs.PipelineScheduleSingle)
    stages = stage if single else [stage] * stages_per_device
    with mock.patch.object(
        theirs._PipelineScheduleRuntime, "_prepare_schedule_with_comms"
    ):  # adds the transfers, slowly, and changes no order
        made = CLASSES[name](stages, num_microbatches)
    order = made._get_pipeline_order() if single else made.pipeline_order
    return tuple(tuple(flat(order[rank])) for rank in range(num_devices))


def flat(row):
    """Pairs one after the other; neither empty places nor torch's bookkeeping."""
    for action in row:
        if action is None:
            continue
        for part in action.sub_actions or (action,):
            if (kind := part.computation_type.value) in ("F", "B", "I", "W"):
                yield f"{part.stage_index}{kind}{part.microbatch_index}"


def comparable(name, counts):
    num_devices, num_microbatches, _ = counts
    if SCHEDULES[name].problem(*counts):
        return False
    # torch's 1F1B refuses fewer microbatches than stages; ours does not.
    return name != "1f1b" or num_microbatches >= num_devices


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_action_list_is_torchs(name):
    grid = [counts for counts in GRID if comparable(name, counts)]
    if name == "zb-h1":  # torch wants equal rounds also where they change nothing
        grid = [(n, m, v) for n, m, v in grid if m % max(m // n, 1) == 0]
    assert len(grid) >= 40
    for counts in grid:
        ours = format_actions(schedule_actions(name, *counts))
        expected = torch_rows(name, *counts)
        if name == "1f1b":  # torch lists microbatches 1..M, 0..M - 1 on the last device
            ours, expected = ours[:-1], expected[:-1]
        assert ours == expected, counts


def test_torchs_list_of_1f1b_is_wrong_on_the_last_device():
    assert torch_rows("1f1b", 2, 2, 1)[-1] == ("1F1", "1B0", "1F2", "1B1")
    ours = format_actions(schedule_actions("1f1b", 2, 2))
    assert ours[-1] == ("1F0", "1B0", "1F1", "1B1")


def test_zb_h1_is_torchs_interleaved_zero_bubble_with_one_stage_a_device():
    ours = format_actions(schedule_actions("zb-h1", 4, 8))
    assert ours == torch_rows("interleaved-zb", 4, 8, 1)
    # There are no rounds with one stage, so ours also takes what torch refuses.
    with pytest.raises(ValueError, match="multiple of the number of rounds"):
        torch_rows("zb-h1", 4, 9, 1)
    assert schedule_actions("zb-h1", 4, 9)


@pytest.mark.parametrize("name", ["interleaved-1f1b", "interleaved-zb", "dualpipe-v"])
def test_what_torch_refuses_is_refused_and_nothing_else(name):
    for counts in GRID:
        if counts[2] == 2:
            refused = False
            try:
                torch_rows(name, *counts)
            except ValueError:
                refused = True
            assert refused == bool(SCHEDULES[name].problem(*counts)), counts
