"""Which cards are used, and in which order."""

import random
from itertools import permutations

import pytest
from solver_profiles import REF, cluster, layers, random_profile

from planner.cards import LINKS, Cluster, Device, Link
from planner.errors import InfeasibleError, WishError
from planner.model_profile import (
    MeasuredLink,
    ModelProfile,
    ProfiledCluster,
    ProfiledDevice,
)
from planner.solve import Wishes, best_plan
from planner.solve.arrangements import arrangements

PROFILE = ModelProfile(layers=layers([1.0] * 6))


def names(cards):
    return [device.name for device in cards.devices]


def mixed(*kinds, link=LINKS["free"], **same):
    """Cards by kind: name, memory, speed."""
    counts = {}
    devices = []
    for name, memory_bytes, speed in kinds:
        number = counts[name] = counts.get(name, -1) + 1
        devices.append(
            Device(name=f"{name}:{number}", memory_bytes=memory_bytes, speed=speed)
        )
    return Cluster(devices=tuple(devices), links=(link,), **same)


SLOW, FAST = ("slow", 10**12, 1.0), ("fast", 10**12, 2.0)


def test_equal_cards_are_not_told_apart():
    found = [names(x) for x in arrangements(cluster(3), PROFILE)]
    assert found == [["gpu:0", "gpu:1", "gpu:2"], ["gpu:0", "gpu:1"], ["gpu:0"]]


def test_all_orders_of_unequal_cards_come_those_with_most_speed_first():
    found = [names(x) for x in arrangements(mixed(SLOW, FAST, SLOW), PROFILE)]
    assert found[0] == ["slow:0", "fast:0", "slow:1"]
    assert sorted(found[1:3]) == [
        ["fast:0", "slow:0", "slow:1"],
        ["slow:0", "slow:1", "fast:0"],
    ]
    assert {len(x) for x in found[3:5]} == {2}
    assert len(found) == len(set(map(tuple, found))) == 3 + 2 + 1 + 1 + 1


def test_many_cards_are_put_in_order_kind_by_kind():
    found = [names(x) for x in arrangements(mixed(*[SLOW, FAST] * 3), PROFILE)]
    full = [x for x in found if len(x) == 6]
    assert len(full) == 3, "as given, and each kind first"


@pytest.mark.parametrize("same", [{"type": "cpu"}, {"links": True}])
def test_what_is_fixed_stays(same):
    if same.pop("links", False):
        same["links"] = (LINKS["free"], LINKS["pcie3x4"])
    base = mixed(SLOW, FAST, SLOW)
    cards = Cluster(devices=base.devices, **{"links": base.links, **same})
    assert list(arrangements(cards, PROFILE)) == [cards]


def test_measured_links_go_with_their_cards():
    pairs = [(a, b) for a in range(3) for b in range(3) if a != b]
    links = [
        MeasuredLink(
            source=a,
            target=b,
            bandwidth=1e9,
            duplex_bandwidth=1e9 * (1 + a + b),
            latency_s=0.0,
        )
        for a, b in pairs
    ]
    profile = ModelProfile(
        layers=PROFILE.layers,
        device=ProfiledDevice(name="card"),
        cluster=ProfiledCluster(
            devices=("a", "b", "c"), backend="nccl", links=tuple(links)
        ),
    )
    cards = mixed(SLOW, FAST, SLOW, links_from="measured")
    found = {tuple(names(x)): x.links for x in arrangements(cards, profile)}
    speeds = [x.bandwidth for x in found["slow:0", "slow:1", "fast:0"]]
    assert speeds == [3e9, 4e9], "positions 0, 2, 1"


def test_a_slow_card_in_the_way_is_left_out():
    crawling = ("slow", 10**12, 0.01)
    plan = best_plan(
        PROFILE,
        mixed(SLOW, crawling, SLOW),
        Wishes(schedule="1f1b"),
        profile_ref=REF,
    )
    assert [card.device for card in plan.cards] == ["slow:0", "slow:2"]
    assert plan.given_cards == ("slow:0", "slow:1", "slow:2")
    kept = best_plan(
        PROFILE,
        mixed(SLOW, crawling, SLOW),
        Wishes(schedule="1f1b", keeps_cards=True),
        profile_ref=REF,
    )
    assert len(kept.cards) == 3
    assert kept.predicted.step_s > plan.predicted.step_s


def test_over_a_slow_link_one_card_is_quicker_than_two():
    dear = layers([1.0] * 6, output_bytes=10**6)
    plan = best_plan(
        ModelProfile(layers=dear),
        cluster(2, link=Link(name="slow", bandwidth=1e4, latency_s=0.0)),
        Wishes(),
        profile_ref=REF,
    )
    assert plan.num_devices == 1


@pytest.mark.parametrize("seed", range(300, 340))
def test_no_arrangement_is_quicker_than_the_plans(seed):
    """All subsets in all orders, each searched by itself; but for one percent."""
    rng = random.Random(seed)
    profile = random_profile(rng)
    kinds = [
        (f"kind{i}", rng.choice([2000, 4000, 10**6]), rng.choice([0.5, 1.0, 2.0]))
        for i in range(2)
    ]
    cards = mixed(*rng.choices(kinds, k=rng.randint(2, 3)))
    wishes = {"schedule": "1f1b", "optimizer": "adamw", "global_batch_size": 4}
    expected_s = float("inf")
    for count in range(1, len(cards) + 1):
        for devices in permutations(cards.devices, count):
            other = Cluster(devices=devices, links=cards.links)
            try:
                plan = best_plan(
                    profile, other, Wishes(keeps_cards=True, **wishes), profile_ref=REF
                )
            except (InfeasibleError, WishError):  # or more cards than stages
                continue
            expected_s = min(expected_s, plan.predicted.step_s)
    if expected_s == float("inf"):
        with pytest.raises(InfeasibleError):
            best_plan(profile, cards, Wishes(**wishes), profile_ref=REF)
        return
    plan = best_plan(profile, cards, Wishes(**wishes), profile_ref=REF)
    assert plan.predicted.step_s >= expected_s * (1 - 1e-6)
    assert plan.predicted.step_s <= expected_s / 0.99 * (1 + 1e-6)
