"""Which link joins each card to the next."""

from itertools import permutations

import pytest

from planner.cards import parse_link
from planner.cluster import parse_cluster, with_one_more
from planner.errors import WishError
from planner.model_profile import (
    LayerProfile,
    MeasuredLink,
    ModelProfile,
    ProfiledCluster,
    ProfiledDevice,
)
from planner.stage_links import links_note, load_note, parse_links
from planner.units import GIB

RTX3090 = "NVIDIA GeForce RTX 3090"
RTX4090 = "NVIDIA GeForce RTX 4090"


def measured(names, backend="nccl", rates=None):
    """A cluster whose pairs have 10 GB/s both ways at once, unless said."""
    return ProfiledCluster(
        devices=tuple(names),
        backend=backend,
        links=tuple(
            MeasuredLink(
                source=a,
                target=b,
                bandwidth=50e9,
                duplex_bandwidth=(rates or {}).get((a, b), 10e9),
                latency_s=20e-6,
            )
            for a, b in permutations(range(len(names)), 2)
        ),
    )


def profile_with(cluster, name=RTX3090, type="cuda"):
    return ModelProfile(
        layers=(LayerProfile(name="a"),),
        device=ProfiledDevice(name=name, memory_bytes=24 * GIB, type=type),
        cluster=cluster,
    )


def names_of(cluster):
    return [cluster.link_after(i).name for i in range(len(cluster) - 1)]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("pcie4x8", ["pcie4x8"]),
        ("12GB/s,10us", ["12GB/s,10us"]),
        ("pcie4x8,pcie3x4,free", ["pcie4x8", "pcie3x4", "free"]),
        ("pcie4x8, 12GB/s, 10us, free", ["pcie4x8", "12GB/s, 10us", "free"]),
        (
            "12GB/s,10us,3GB/s,0.5ms,1GB/s,0s",
            ["12GB/s,10us", "3GB/s,0.5ms", "1GB/s,0s"],
        ),
    ],
)
def test_a_comma_parts_links_but_not_a_rate_from_its_latency(text, names):
    assert [link.name for link in parse_links(text, 3)] == names


@pytest.mark.parametrize(
    ("text", "num_pairs", "words"),
    [
        ("pcie4x8,free", 3, "--link has 2 values for 3 pairs"),
        ("free,free", 1, "--link has 2 values for 1 pair of"),
        ("pcie4x8,12GB/s", 2, "'12GB/s' is not a link"),
        ("10us,pcie4x8", 2, "'10us' is not a link"),
        ("", 1, "'' is not a link"),
    ],
)
def test_links_that_do_not_match_the_cards_are_refused(text, num_pairs, words):
    with pytest.raises(WishError) as caught:
        parse_links(text, num_pairs)
    assert words in str(caught.value)


def test_one_link_given_holds_for_all_pairs():
    cluster = parse_cluster("3", profile_with(None), link="free")
    assert names_of(cluster) == ["free", "free"]
    assert cluster.links_from == "given"


def test_a_measured_pair_has_its_rate_both_ways_at_once():
    profile = profile_with(measured([RTX3090] * 2))
    cluster = parse_cluster("2", profile)
    assert cluster.link_after(0).transfer_s(10**9) == pytest.approx(0.10002)
    assert cluster.links_from == "measured"
    assert links_note(cluster, profile) == "using the links that the profile measured"


def test_a_measured_pair_counts_with_its_slower_direction():
    rates = {(0, 1): 8e9, (2, 1): 2e9}
    profile = profile_with(measured([RTX3090] * 3, rates=rates))
    cluster = parse_cluster("3", profile)
    assert [cluster.link_after(i).bandwidth for i in (0, 1)] == [8e9, 2e9]


def test_a_measured_link_has_a_name_that_a_user_may_write():
    cluster = parse_cluster("2", profile_with(measured([RTX3090] * 2)))
    (name,) = names_of(cluster)
    assert name == "10.00GB/s,20us"
    assert parse_link(name).transfer_s(10**9) == pytest.approx(0.10002)


def test_fewer_cards_than_measured_take_the_first_links():
    rates = {(0, 1): 5e9, (1, 2): 3e9, (2, 3): 1e9}
    profile = profile_with(measured([RTX3090] * 4, rates=rates))
    cluster = parse_cluster("3", profile)
    assert [link.bandwidth for link in cluster.links] == [5e9, 3e9]
    assert "of its first 3 devices" in links_note(cluster, profile)
    one_more = with_one_more(cluster, profile)
    assert [link.bandwidth for link in one_more.links] == [5e9, 3e9, 1e9]


def test_more_cards_than_measured_have_usual_links_and_say_so():
    profile = profile_with(measured([RTX3090] * 2))
    cluster = parse_cluster("4", profile)
    assert cluster.links_from == "assumed"
    note = links_note(cluster, profile)
    assert "2 devices over nccl, not of these 4: assuming pcie4x8" in note


def test_what_the_user_gives_wins_over_what_was_measured():
    profile = profile_with(measured([RTX3090] * 2))
    cluster = parse_cluster("2", profile, link="pcie3x4")
    assert names_of(cluster) == ["pcie3x4"]
    assert links_note(cluster, profile) == ""


@pytest.mark.parametrize(
    ("gpus", "origin"),
    [
        ("rtx3090:1,rtx4090:1", "measured"),
        ("rtx3090:2", "assumed"),
        ("rtx4090:1,rtx3090:1", "assumed"),
    ],
)
def test_named_cards_must_be_those_that_were_measured(gpus, origin):
    cluster = parse_cluster(gpus, profile_with(measured([RTX3090, RTX4090])))
    assert cluster.links_from == origin


def test_links_of_processes_on_a_cpu_say_nothing_about_cards():
    profile = profile_with(measured(["cpu"] * 2, backend="gloo"))
    assert parse_cluster("2", profile).links_from == "assumed"
    on_cpu = profile_with(measured(["cpu"] * 2, backend="gloo"), "cpu", "cpu")
    assert parse_cluster("2", on_cpu).links_from == "measured"


def test_a_measurement_without_a_needed_pair_is_not_used():
    profile = profile_with(measured([RTX3090] * 2, rates={(1, 0): 0.0}))
    assert parse_cluster("2", profile).links_from == "assumed"


def test_one_more_card_continues_the_links_that_were_given():
    profile = profile_with(None)
    one = with_one_more(parse_cluster("1", profile, link="free"), profile)
    assert names_of(one) == ["free"]
    three = parse_cluster("3", profile, link="free,pcie3x4")
    assert names_of(with_one_more(three, profile)) == ["free", "pcie3x4", "pcie3x4"]


def test_one_card_has_no_note_on_links():
    profile = profile_with(measured([RTX3090] * 2))
    assert links_note(parse_cluster("1", profile), profile) == ""


def test_a_cpu_profile_of_another_number_of_processes_is_told():
    def note(num_processes, count):
        device = ProfiledDevice(
            name="cpu", kind="measured", type="cpu", num_processes=num_processes
        )
        profile = ModelProfile(layers=(LayerProfile(name="layer"),), device=device)
        return load_note(parse_cluster(str(count), profile, memory="1GiB"), profile)

    assert note(2, 2) == note(1, 1) == ""
    assert note(1, 2).endswith("profile again with --num-processes 2")
    assert "while 1 process computed, and this plan has 2" in note(1, 2)
