"""From what a user types to the cards of a cluster."""

import pytest

from planner.cards import CARDS, DEFAULT_CUDA_RESERVE_BYTES
from planner.cluster import parse_cluster, profiled_card, with_one_more
from planner.errors import WishError
from planner.model_profile import LayerProfile, ModelProfile, ProfiledDevice
from planner.units import GIB


def profile_on(name="rtx3090", memory_bytes=24 * GIB, type="cuda", dtype="bfloat16"):
    device = ProfiledDevice(name=name, memory_bytes=memory_bytes, type=type)
    return ModelProfile(layers=(LayerProfile(name="a"),), device=device, dtype=dtype)


def test_a_count_repeats_the_device_of_the_profile():
    cluster = parse_cluster("3", profile_on())
    assert [d.name for d in cluster.devices] == [f"rtx3090:{i}" for i in range(3)]
    assert {d.memory_bytes for d in cluster.devices} == {24 * GIB}
    assert {d.reserve_bytes for d in cluster.devices} == {DEFAULT_CUDA_RESERVE_BYTES}
    assert (cluster.type, cluster.link_after(1).name) == ("cuda", "pcie4x8")


def test_devices_on_a_cpu_share_the_memory_of_the_host():
    cluster = parse_cluster("4", profile_on("cpu", 8 * GIB, "cpu"))
    assert {d.memory_bytes for d in cluster.devices} == {2 * GIB}
    assert {d.reserve_bytes for d in cluster.devices} == {0}
    assert (cluster.type, cluster.link_after(2).name) == ("cpu", "gloo")


def test_cards_of_the_catalogue_have_their_own_memory_and_speed():
    cluster = parse_cluster("rtx3090:2,rtx4090:1,rtx3090", profile_on())
    names = ["rtx3090:0", "rtx3090:1", "rtx4090:0", "rtx3090:2"]
    assert [d.name for d in cluster.devices] == names
    ratio = CARDS["rtx4090"].bf16_flops / CARDS["rtx3090"].bf16_flops
    assert [d.speed for d in cluster.devices] == [1.0, 1.0, ratio, 1.0]
    assert cluster.devices[2].memory_bytes == CARDS["rtx4090"].memory_bytes


def test_the_default_usable_memory_of_a_24_gb_card_is_below_24_gib():
    (device,) = parse_cluster("rtx3090", profile_on()).devices
    assert device.budget_bytes < 23 * GIB


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("NVIDIA GeForce RTX 3090 Ti", "rtx3090ti"),
        ("NVIDIA GeForce RTX 3090", "rtx3090"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L40", None),
        ("cpu", None),
    ],
)
def test_the_card_is_found_by_the_name_that_cuda_gives(name, card):
    found = profiled_card(profile_on(name))
    assert (found.name if found else None) == card


@pytest.mark.parametrize(
    ("memory", "gib"),
    [
        ("24GiB", [24, 24, 24]),
        ("24GiB,16GiB,10GiB", [24, 16, 10]),
        ("2:10GiB,0:16GiB", [16, 24, 10]),
        (str(8 * GIB), [8, 8, 8]),
        ("24GiB,0,24GiB", [24, 0, 24]),
    ],
)
def test_memory_is_for_all_for_each_or_by_position(memory, gib):
    cluster = parse_cluster("3", profile_on(), memory=memory)
    assert [d.memory_bytes / GIB for d in cluster.devices] == gib


def test_a_reserve_that_takes_all_of_a_card_is_refused():
    with pytest.raises(WishError, match=r"--reserve 24\.0 GiB leaves nothing"):
        parse_cluster("2", profile_on(), reserve="24GiB,0")


def test_reserve_link_and_speed_are_taken_as_said():
    cluster = parse_cluster(
        "2", profile_on(), reserve="0", link="12GB/s,10us", speed="1,2"
    )
    assert [d.reserve_bytes for d in cluster.devices] == [0, 0]
    assert [d.speed for d in cluster.devices] == [1.0, 2.0]
    assert cluster.link_after(0).transfer_s(12 * 10**9) == pytest.approx(1.00001)


@pytest.mark.parametrize(
    ("gpus", "options", "words"),
    [
        ("0", {}, "--gpus 0: at least one"),
        ("-1", {}, "--gpus -1: at least one"),
        ("", {}, "cannot be read"),
        ("rtx3090:x", {}, "cannot be read at 'rtx3090:x'"),
        ("rtx3090:0", {}, "cannot be read at 'rtx3090:0'"),
        ("rtx3090:2,", {}, "cannot be read at ''"),
        ("banana", {}, "unknown card 'banana'"),
        ("3", {"memory": "24GiB,24GiB"}, "--memory has 2 values for 3 cards"),
        ("3", {"memory": "5:24GiB"}, "no card 5 among 3"),
        ("3", {"memory": "1:24GiB,1:8GiB"}, "names card 1 twice"),
        ("3", {"memory": "much"}, "'much' is not a size"),
        ("3", {"speed": "1,0,1"}, "'0' is not a number above 0"),
        ("3", {"link": "string"}, "'string' is not a link"),
    ],
)
def test_what_cannot_be_read_is_named(gpus, options, words):
    with pytest.raises(WishError) as caught:
        parse_cluster(gpus, profile_on(), **options)
    assert words in str(caught.value)


def test_a_profile_without_memory_asks_for_it():
    with pytest.raises(WishError, match="give --memory"):
        parse_cluster("2", profile_on("", 0))
    cluster = parse_cluster("2", profile_on("", 0), memory="1GiB")
    assert [d.name for d in cluster.devices] == ["gpu:0", "gpu:1"]


def link_names(gpus, profile=None, **wishes):
    cluster = parse_cluster(gpus, profile or profile_on(), **wishes)
    return [link.name for link in cluster.links]


@pytest.mark.parametrize(
    ("gpus", "links"),
    [
        ("rtx3090", ["pcie4x8"]),
        ("rtx5090:2", ["pcie5x8"]),
        ("a100:2,rtx3090:2", ["pcie4x16", "pcie4x8", "pcie4x8"]),
    ],
)
def test_a_link_is_the_slower_of_what_both_neighbours_have_unless_said(gpus, links):
    assert link_names(gpus) == links
    assert set(link_names(gpus, link="free")) == {"free"}


def test_the_link_between_cards_like_the_profiled_one_is_that_of_its_card():
    assert link_names("2", profile_on("NVIDIA A100-SXM4-80GB")) == ["pcie4x16"]
    assert link_names("2", profile_on("Strange GPU")) == ["pcie4x8"]


def test_a_card_without_the_dtype_of_the_profile_is_refused():
    with pytest.raises(WishError, match="t4 has no bfloat16, only float32"):
        parse_cluster("rtx3090:1,t4:1", profile_on())
    cluster = parse_cluster("rtx3090:1,t4:1", profile_on(dtype="float32"))
    ratio = CARDS["t4"].fp32_flops / CARDS["rtx3090"].fp32_flops
    assert [d.speed for d in cluster.devices] == [1.0, ratio]


def test_cards_beside_an_unknown_device_ask_for_their_speed():
    with pytest.raises(WishError, match="'cpu', which is not in the catalogue"):
        parse_cluster("rtx3090:2", profile_on("cpu", GIB, "cpu"))
    cluster = parse_cluster("rtx3090:2", profile_on("cpu", GIB, "cpu"), speed="50")
    assert [d.speed for d in cluster.devices] == [50.0, 50.0]
    assert cluster.type == "cuda"


def test_one_more_card_is_of_the_last_kind():
    cluster = parse_cluster("rtx3090:1,rtx4090:1", profile_on())
    more = with_one_more(cluster, profile_on())
    assert [d.name for d in more.devices] == ["rtx3090:0", "rtx4090:0", "rtx4090:1"]


def test_one_more_device_on_a_cpu_shares_the_same_host():
    profile = profile_on("cpu", 6 * GIB, "cpu")
    more = with_one_more(parse_cluster("2", profile), profile)
    assert [d.memory_bytes for d in more.devices] == [2 * GIB] * 3


def test_what_a_run_needed_above_its_prediction_is_kept_free_besides():
    device = ProfiledDevice(name="rtx3090", memory_bytes=24 * GIB, unpredicted_bytes=7)
    profile = ModelProfile(device=device, layers=(LayerProfile(name="a"),))
    for gpus in ("2", "rtx3090:2"):
        given = parse_cluster(gpus, profile, reserve="1GiB,0")
        assert [d.reserve_bytes for d in given.devices] == [GIB + 7, 7]
