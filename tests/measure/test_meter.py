"""The allocator's figures are read as they are."""

import pytest
import torch

from planner.measure.meter import AllocatorMeter


def test_the_allocator_is_asked_about_its_card(monkeypatch):
    device, asked = torch.device("cuda:1"), []

    def answer(value):
        return lambda device: asked.append(device) or value

    monkeypatch.setattr(torch.cuda, "memory_allocated", answer(512))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", answer(1024))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", answer(None))
    with AllocatorMeter(device) as meter:
        meter.reset_peak()
        assert (meter.current_bytes, meter.peak_bytes) == (512, 1024)
    assert asked == [device] * 3


@pytest.mark.gpu
def test_a_tensor_of_a_card_is_counted_while_it_lives():
    device = torch.device("cuda")
    with AllocatorMeter(device) as meter:
        meter.reset_peak()
        before = meter.current_bytes
        tensor = torch.empty(1000, device=device)
        assert meter.current_bytes - before == 4096
        del tensor
        assert meter.current_bytes == before
        assert meter.peak_bytes - before == 4096
