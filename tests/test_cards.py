import pytest

from planner.cards import (
    CARDS,
    DEFAULT_CUDA_RESERVE_BYTES,
    LINKS,
    Cluster,
    Device,
    Link,
    card_named,
    parse_link,
)
from planner.cards_text import catalogue, describe_cards
from planner.errors import WishError
from planner.units import GIB


@pytest.mark.parametrize("name", ["rtx3090", "rtx3090ti", "rtx4090", "a5000"])
def test_a_24_gb_card_leaves_less_than_24_gib_and_more_after_the_reserve(name):
    memory_bytes = CARDS[name].memory_bytes
    assert 23.5 * GIB < memory_bytes < 23.7 * GIB
    assert 21 * GIB < memory_bytes - DEFAULT_CUDA_RESERVE_BYTES < 23 * GIB


@pytest.mark.parametrize("name", ["RTX 3090", "rtx-3090", "rtx_3090", "Rtx3090"])
def test_a_card_is_found_however_it_is_written(name):
    assert card_named(name) is CARDS["rtx3090"]


def test_an_unknown_card_is_refused_with_the_catalogue():
    with pytest.raises(WishError, match=r"unknown card 'rtx9090'.*rtx3090ti"):
        card_named("rtx9090")


def test_a_link_is_a_name_or_a_rate_and_a_latency():
    assert parse_link("pcie4x16") is LINKS["pcie4x16"]
    link = parse_link("12GB/s, 10us")
    assert (link.bandwidth, link.latency_s) == (12e9, pytest.approx(10e-6))
    assert parse_link("1GiB/s,2.5ms").latency_s == pytest.approx(2.5e-3)


@pytest.mark.parametrize("text", ["", "pcie9", "12GB/s", "0GB/s,1us", "12GB/s,-1us"])
def test_what_is_no_link_is_refused(text):
    with pytest.raises(WishError):
        parse_link(text)


def test_a_transfer_takes_latency_and_bytes_over_bandwidth():
    link = Link(name="x", bandwidth=1e9, latency_s=0.5)
    assert link.transfer_s(2 * 10**9) == 0.5 + 2.0
    assert link.transfer_s(0) == 0.0
    assert LINKS["free"].transfer_s(10**12) == 0.0


def test_the_budget_is_capacity_less_reserve():
    device = Device(name="a", memory_bytes=10, reserve_bytes=3)
    assert device.budget_bytes == 7


def test_impossible_clusters_are_refused():
    with pytest.raises(ValueError, match="speed of a is 0"):
        Device(name="a", memory_bytes=1, speed=0)
    with pytest.raises(ValueError, match="at least one device"):
        Cluster(devices=(), links=(LINKS["free"],))


def test_the_catalogue_names_every_card_and_link():
    text = describe_cards()
    assert {line.split()[0] for line in text.splitlines() if line} >= {*CARDS, *LINKS}
    data = catalogue()
    assert [card["name"] for card in data["cards"]] == [*CARDS]
    assert {link["name"]: link["bandwidth"] for link in data["links"]}["free"] is None
