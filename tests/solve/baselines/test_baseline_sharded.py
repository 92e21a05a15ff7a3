"""ZeRO-3: volumes, times and memory that can be worked out by hand."""

import dataclasses

import pytest
from baseline_settings import setting
from solver_profiles import cluster, layers

from planner.cards import Cluster, Device, Link
from planner.memory import parameters_of_stages
from planner.model_profile import LayerProfile, ModelProfile, ProfiledDevice
from planner.solve.baselines.sharded import (
    pass_s,
    peak_bytes,
    ring_s,
    sharded,
    traffic,
)

LINK = Link(name="100 B/s", bandwidth=100.0, latency_s=0.0)
# 16 bytes a parameter with AdamW: 4 of weights, 4 of gradients, 8 of states.
PROFILE = ModelProfile(layers=layers([1.0, 1.0], num_parameters=100), dtype="float32")


def on_four_cards(profile=PROFILE, batch=8):
    """Fewer layers than cards would be no pipeline."""
    one = setting(profile, cluster(1), global_batch_size=batch)
    return dataclasses.replace(one, cluster=cluster(4, link=LINK))


def test_a_ring_moves_all_shares_but_one():
    latent = dataclasses.replace(LINK, latency_s=0.5)
    assert ring_s(400, 4, LINK) == 3 * 1.0
    assert ring_s(400, 4, latent) == 3 * 1.5
    assert ring_s(0, 4, latent) == 0.0


def test_a_microbatch_gathers_twice_and_sums_once():
    moved = traffic([100, 100], on_four_cards())
    # 3/4 of 400 bytes a layer, each time.
    assert moved.gather_bytes == moved.sum_bytes == (300.0, 300.0)
    assert moved.total_bytes == 3 * 600.0
    assert moved.total_s == 3 * 2 * 3.0


@pytest.mark.parametrize(
    ("work", "gather", "sums", "expected_s"),
    [
        # Only the first gathering is waited for.
        ([4, 4, 4], [1, 1, 1], [0, 0, 0], 13),
        # The link is the bottleneck, and is never idle.
        ([4, 4, 4], [6, 6, 6], [0, 0, 0], 22),
        # The last sum ends the pass: 1 + 4 + 4 + 2.
        ([4, 4], [1, 1], [2, 2], 11),
        # The third layer is gathered when the first is freed: 10 + 4, then its work.
        ([9, 1, 1], [1, 1, 4], [0, 0, 0], 15),
        ([3], [2], [5], 10),
    ],
)
def test_transfers_run_beside_the_work(work, gather, sums, expected_s):
    assert pass_s(work, gather, sums) == expected_s


def test_a_step_is_rounds_of_microbatches_and_the_optimizer():
    device = ProfiledDevice(optimizer_s_per_parameter={"adamw": 0.1})
    profile = dataclasses.replace(PROFILE, device=device)
    entry = sharded(on_four_cards(profile))
    # F: 3 to gather, 3 to gather beside 1 of work, 1 of work. B: 3, then 3 beside 2 of
    # work, 3 to sum beside 2 of work, 3 to sum. Each card has 2 of 8 microbatches, and
    # 50 of 200 parameters.
    assert entry.step_s == pytest.approx(2 * (7 + 12) + 50 * 0.1)
    assert entry.layers_per_stage == ()


def test_a_batch_that_cards_cannot_share_evenly_takes_one_round_more():
    own = on_four_cards(batch=9)
    assert sharded(own).step_s == 3 * 19.0


def test_all_wait_for_the_slowest_card():
    free = setting(PROFILE, cluster(2, speeds=[1.0, 0.5]), global_batch_size=2)
    assert sharded(free).step_s == 2 * (2 + 4)


def test_a_card_holds_its_share_and_two_layers():
    own = on_four_cards()
    # 16 * 200 / 4; in B of the first layer its weights and both gradients.
    assert peak_bytes(own, 1, [100, 100], False) == 800 + 3 * 400


def test_activations_of_one_microbatch_are_not_shared():
    block = {"activation_bytes": 50, "backward_peak_bytes": 7}
    rows = tuple(LayerProfile(name=f"layer.{i}", **block) for i in range(3))
    own = setting(ModelProfile(layers=rows), cluster(3))
    assert peak_bytes(own, 1, [0, 0, 0], False) == 3 * 50 + 7
    # The middle one keeps nothing, and comes back beside the first.
    assert peak_bytes(own, 1, [0, 0, 0], True) == 2 * 50 + 7


def test_shared_parameters_are_gathered_once_and_stay():
    profile = dataclasses.replace(PROFILE, ties=(("layer.0", "layer.1"),))
    counts = parameters_of_stages([[x] for x in profile.layers], profile.ties)
    assert counts == [100, 0]
    own = on_four_cards(profile)
    # 16 * 100 / 4, the shared weights and gradients, and those of layer 0 itself.
    assert peak_bytes(own, 1, counts, False) == 400 + 400 + 400 + 400 + 400
    assert traffic(counts, own).total_bytes == 3 * 300.0


def test_what_is_missing_is_that_of_the_smallest_card():
    devices = (
        Device(name="large:0", memory_bytes=10_000),
        Device(name="small:0", memory_bytes=1500, reserve_bytes=100),
    )
    own = setting(PROFILE, Cluster(devices=devices, links=(LINK,)))
    entry = sharded(own)
    # 16 * 200 / 2 + 3 * 400 + 100 of 1500.
    assert (entry.fits, entry.card, entry.missing_bytes) == (False, "small:0", 1400)


def test_the_microbatch_size_is_the_best_for_it():
    larger = tuple(
        dataclasses.replace(row, forward_s=1.5, backward_s=3.0)
        for row in PROFILE.layers
    )
    profile = dataclasses.replace(PROFILE, microbatches={"2": larger})
    own = setting(profile, cluster(2, link=LINK), global_batch_size=8)
    entry = sharded(own)
    assert own.microbatch_size == 1
    assert entry.microbatch_size == 2
