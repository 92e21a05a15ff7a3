"""One card alone, and a copy on every card."""

import dataclasses

from baseline_settings import setting
from solver_profiles import cluster, layers

from planner.cards import Cluster, Device, Link
from planner.model_profile import ModelProfile
from planner.solve.baselines.whole import copies, single_card

LINK = Link(name="100 B/s", bandwidth=100.0, latency_s=0.0)
PROFILE = ModelProfile(layers=layers([1.0] * 3, num_parameters=100), dtype="float32")


def test_one_card_does_all_microbatches_one_after_the_other():
    entry = single_card(setting(PROFILE, cluster(3), global_batch_size=8))
    assert entry.step_s == 8 * 9.0
    assert entry.layers_per_stage == (3,)
    assert entry.fits


def test_the_quickest_card_that_is_large_enough_is_taken():
    devices = (
        Device(name="slow:0", memory_bytes=10**6),
        Device(name="quick:0", memory_bytes=10**6, speed=2.0),
        Device(name="small:0", memory_bytes=10, speed=3.0),
    )
    own = setting(PROFILE, Cluster(devices=devices, links=(LINK,)), global_batch_size=8)
    entry = single_card(own)
    assert (entry.card, entry.step_s) == ("quick:0", 8 * 4.5)


def test_a_card_that_is_too_small_lacks_what_is_above_its_memory():
    own = setting(PROFILE, cluster(2, memory_bytes=3000))
    entry = single_card(own)
    # 16 bytes for each of 300 parameters.
    assert (entry.fits, entry.missing_bytes) == (False, 1800)
    assert "optimizer 2.34 KiB" in entry.judgement


def test_copies_share_the_batch_and_sum_gradients_once():
    own = setting(PROFILE, cluster(2, link=LINK), global_batch_size=8)
    # 4 microbatches each; 2 transfers of 600 bytes, less the 6 s of the last B.
    assert copies(own).step_s == 4 * 9.0 + 12.0 - 6.0
    free = setting(PROFILE, cluster(2), global_batch_size=8)
    assert copies(free).step_s == 4 * 9.0


def test_copies_wait_for_the_slowest_card():
    own = setting(PROFILE, cluster(2, speeds=[1.0, 3.0]), global_batch_size=8)
    assert copies(own).step_s == 4 * 9.0


def test_every_card_must_hold_a_copy():
    devices = (
        Device(name="large:0", memory_bytes=10**6),
        Device(name="small:0", memory_bytes=4000),
    )
    own = setting(PROFILE, Cluster(devices=devices, links=(LINK,)))
    entry = copies(own)
    assert (entry.fits, entry.card, entry.missing_bytes) == (False, "small:0", 800)


def test_only_sizes_that_divide_the_batch_are_tried():
    quick = tuple(
        dataclasses.replace(row, forward_s=0.0, backward_s=0.0)
        for row in PROFILE.layers
    )
    profile = dataclasses.replace(PROFILE, microbatches={"2": quick})
    odd = setting(profile, cluster(2), global_batch_size=3)
    even = setting(profile, cluster(2), global_batch_size=4)
    assert single_card(odd).microbatch_size == 1
    assert single_card(even).microbatch_size == 2
