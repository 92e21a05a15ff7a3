"""Live bytes are counted storage by storage, from birth until they are freed."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from planner.measure.live_bytes import LiveBytes, all_tensors

KIB = 1024


def floats(kib):
    return torch.zeros(kib * KIB // 4)


def test_a_view_is_not_counted_again():
    with LiveBytes([]) as live:
        tensor = floats(4)
        views = tensor.view(2, -1).t(), tensor[7:], tensor.detach()
        assert live.current_bytes == 4 * KIB
        del tensor
        # Any view keeps the whole storage.
        assert live.current_bytes == 4 * KIB
        del views
        assert live.current_bytes == 0


def test_the_peak_stays_when_tensors_go():
    with LiveBytes([]) as live:
        first = floats(4)
        second = first + 1
        del first
        third = floats(1)
        assert live.current_bytes == 5 * KIB
        assert live.peak_bytes == 8 * KIB
        del second, third
        live.reset_peak()
        assert (live.current_bytes, live.peak_bytes) == (0, 0)


def test_in_place_work_takes_no_memory():
    with LiveBytes([]) as live:
        tensor = floats(4)
        tensor.add_(1).mul_(2)[3:].zero_()
        assert live.peak_bytes == 4 * KIB


def test_tensors_from_before_count_until_they_go():
    before = floats(4)
    with LiveBytes([before, before[1:]]) as live:
        assert live.current_bytes == 4 * KIB
        before = before + 1
        assert live.peak_bytes == 8 * KIB
        assert live.current_bytes == 4 * KIB


def test_what_was_not_given_is_not_counted():
    other = floats(4)
    with LiveBytes([]) as live:
        assert live.current_bytes == 0
        del other
        assert live.current_bytes == 0


def test_without_a_list_everything_that_python_knows_is_counted():
    before = LiveBytes().current_bytes
    holder = {"a": [floats(4)]}
    assert LiveBytes().current_bytes == before + 4 * KIB
    del holder
    assert LiveBytes().current_bytes == before


def test_garbage_that_waits_for_its_collector_is_not_counted():
    before = LiveBytes().current_bytes
    circle = [floats(4)]
    circle.append(circle)
    del circle
    assert LiveBytes().current_bytes == before


def test_ignored_tensors_are_left_out_with_their_views():
    ours, data = floats(4), floats(8)
    view = data[5:]
    found = {id(tensor) for tensor in all_tensors(ignore=[data])}
    assert id(ours) in found
    assert not found & {id(data), id(view)}


def test_tensors_without_memory_are_not_found():
    with FakeTensorMode():
        fake = floats(4)
    meta = torch.zeros(4, device="meta")
    assert not {id(fake), id(meta)} & {id(tensor) for tensor in all_tensors()}


def test_fake_tensors_are_counted_like_real_ones():
    with FakeTensorMode(), LiveBytes([]) as live:
        tensor = floats(4)
        product = tensor.view(32, 32) @ tensor.view(32, 32)
        assert live.peak_bytes == 8 * KIB
        del product
        assert live.current_bytes == 4 * KIB


@pytest.mark.parametrize(("num_bytes", "counted"), [(4, 512), (512, 512), (516, 1024)])
def test_sizes_are_rounded_up_to_the_granularity(num_bytes, counted):
    with LiveBytes([], granularity=512) as live:
        tensor = torch.zeros(num_bytes // 4)
        assert live.current_bytes == counted
        del tensor
        assert live.current_bytes == 0


def test_what_autograd_keeps_is_live():
    weight = torch.ones(KIB // 4, requires_grad=True)
    with LiveBytes([weight]) as live:
        loss = (floats(1) + 1).mul(weight).sum()
        # The factor beside the weight, and the loss.
        assert live.current_bytes == 2 * KIB + 4
        loss.backward()
        del loss
        assert live.current_bytes == 2 * KIB, "the weight and its gradient"


@pytest.mark.parametrize(("is_held", "in_flight"), [(False, 2), (True, 3)])
def test_a_gradient_that_nobody_else_holds_takes_in_the_next_one(is_held, in_flight):
    x = torch.randn(256, 256, requires_grad=True)
    hidden = x * 2
    held = []
    ways = [hidden * 3, hidden * 5]
    if is_held:
        ways[1].grad_fn.register_hook(lambda inputs, outputs: held.append(inputs[0]))
    loss = sum(ways).sum()
    with LiveBytes() as live:
        before = live.current_bytes
        live.reset_peak()
        loss.backward()
        highest_bytes = live.peak_bytes - before
    assert highest_bytes // (256 * KIB) == in_flight
