import pytest

from planner.cards import (
    CARDS,
    DEFAULT_CUDA_RESERVE_BYTES,
    LINKS,
    Cluster,
    Device,
    Link,
    card_called,
    card_named,
    check_dtype,
    default_link,
    known_cards,
    parse_link,
)
from planner.cards_text import catalogue, describe_cards
from planner.errors import ArtifactError, WishError
from planner.units import GIB, MIB

MINE = """
[{name}]
memory_mib = {memory_mib}
bf16_tflops = 50
fp32_tflops = 25
bandwidth_gb_s = 400
"""


@pytest.fixture(autouse=True)
def no_cards_of_the_user(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("PLANNER_CARDS", raising=False)


def write_card(path, name, memory_mib):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(MINE.format(name=name, memory_mib=memory_mib))


@pytest.mark.parametrize("name", ["rtx3090", "rtx3090ti", "rtx4090", "a5000"])
def test_a_24_gb_card_leaves_less_than_24_gib_and_more_after_the_reserve(name):
    memory_bytes = CARDS[name].memory_bytes
    assert 23.5 * GIB < memory_bytes < 23.7 * GIB
    assert 21 * GIB < memory_bytes - DEFAULT_CUDA_RESERVE_BYTES < 23 * GIB
    assert 22.5 * GIB < CARDS[name].usable_bytes < 23.7 * GIB


@pytest.mark.parametrize("name", ["RTX 3090", "rtx-3090", "rtx_3090", "Rtx3090"])
def test_a_card_is_found_however_it_is_written(name):
    assert card_named(name) is CARDS["rtx3090"]


@pytest.mark.parametrize(
    ("name", "card"),
    [("a100-80gb", "a100"), ("V100", "v100-16gb"), ("RTX A6000", "a6000")],
)
def test_a_card_has_other_names(name, card):
    assert card_named(name) is CARDS[card]


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("rtx9090", "the nearest are rtx5090, rtx4090, rtx3090;"),
        ("3090", "the nearest are rtx3090, rtx3090ti;"),
        ("a100-60gb", "the nearest are a100, a100-40gb, "),
        ("banana", "unknown card 'banana'; planner cards lists all"),
    ],
)
def test_an_unknown_card_is_refused_with_the_nearest_names(name, nearest):
    with pytest.raises(WishError, match=f"^unknown card '{name}'") as caught:
        card_named(name)
    assert nearest in str(caught.value)


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("NVIDIA GeForce RTX 3090 Ti", "rtx3090ti"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA A100 80GB PCIe", "a100"),
        ("Tesla V100-SXM2-32GB", "v100-32gb"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA RTX A6000", "a6000"),
        ("NVIDIA L40", None),
        ("NVIDIA A10", None),
        ("NVIDIA GeForce RTX 4080 SUPER", None),
        ("NVIDIA GeForce RTX 3060 Ti", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("cpu", None),
        ("", None),
    ],
)
def test_a_card_is_recognised_in_what_cuda_calls_it_and_no_other(name, card):
    assert card_called(name) is (CARDS[card] if card else None)


def test_a_dtype_that_a_card_lacks_is_refused_with_those_it_has():
    message = "v100-16gb has no bfloat16, only float32; profile with --dtype float32,"
    with pytest.raises(WishError, match=message):
        check_dtype(card_named("v100"), "bfloat16")
    check_dtype(card_named("v100"), "float32")
    check_dtype(card_named("rtx3090"), "bfloat16")
    check_dtype(None, "bfloat16")


# --- cards of the user --------------------------------------------------------


def test_cards_of_the_user_are_found_in_three_places(tmp_path, monkeypatch):
    write_card(tmp_path / "config" / "planner" / "cards.toml", "home", 1000)
    write_card(tmp_path / "planner-cards.toml", "folder", 2000)
    write_card(tmp_path / "elsewhere.toml", "named", 3000)
    assert set(known_cards()) - set(CARDS) == {"home", "folder"}
    monkeypatch.setenv("PLANNER_CARDS", "elsewhere.toml")
    assert [*known_cards()] == [*CARDS, "home", "folder", "named"]
    assert card_named("Named").memory_bytes == 3000 * MIB
    assert card_called("NVIDIA Folder").memory_bytes == 2000 * MIB
    assert describe_cards().count("with the cards of ") == 3


def test_a_card_of_the_user_replaces_ours_and_a_later_file_an_earlier(
    tmp_path, monkeypatch
):
    write_card(tmp_path / "config" / "planner" / "cards.toml", "rtx-3090", 1000)
    assert card_named("rtx3090").memory_bytes == 1000 * MIB
    assert len(known_cards()) == len(CARDS)
    write_card(tmp_path / "planner-cards.toml", "rtx3090", 2000)
    assert card_named("rtx3090").memory_bytes == 2000 * MIB
    assert card_called("NVIDIA GeForce RTX 3090").memory_bytes == 2000 * MIB
    monkeypatch.chdir(tmp_path / "config")
    assert card_named("rtx3090").memory_bytes == 1000 * MIB


def test_a_name_of_the_user_comes_before_another_name_of_ours(tmp_path):
    write_card(tmp_path / "planner-cards.toml", "v100", 1000)
    assert card_named("v100").memory_bytes == 1000 * MIB


def test_without_a_file_of_the_user_the_cards_are_ours():
    assert known_cards() == CARDS


def test_a_file_that_is_named_and_not_there_is_an_error(monkeypatch):
    monkeypatch.setenv("PLANNER_CARDS", "nowhere.toml")
    with pytest.raises(ArtifactError, match=r"cannot read the cards in nowhere\.toml"):
        card_named("rtx3090")


# --- links --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "link"),
    [
        ("rtx3090", "rtx3090", "pcie4x8"),  # two share the 16 lanes of the processor
        ("rtx5090", "rtx5090", "pcie5x8"),
        ("rtx5090", "rtx3090", "pcie4x8"),
        ("a6000", "a6000", "pcie4x16"),
        ("a6000", "rtx3090", "pcie4x8"),
        ("h100", "a100", "pcie4x16"),
        ("t4", "h100", "pcie3x16"),
    ],
)
def test_the_default_link_is_the_slower_of_two_cards(first, second, link):
    assert default_link(CARDS[first], CARDS[second]) is LINKS[link]
    assert default_link(CARDS[second], CARDS[first]).bandwidth == LINKS[link].bandwidth


def test_an_unknown_card_has_a_cautious_link(tmp_path):
    write_card(tmp_path / "planner-cards.toml", "silent", 1000)
    for unknown in (None, card_named("silent")):
        assert default_link(unknown, unknown) is LINKS["pcie4x8"]
        assert default_link(unknown, CARDS["h100"]) is LINKS["pcie4x8"]


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
    (v100,) = (line for line in text.splitlines() if line.startswith("v100-16gb"))
    assert v100.split() == [
        *("v100-16gb", "V100", "SXM2", "16", "GB", "15.8", "GiB", "15.4", "GiB"),
        *("-", "15.7", "900", "3x16", "150"),
    ]
    data = catalogue()
    assert [card["name"] for card in data["cards"]] == [*CARDS]
    (rtx3090,) = (card for card in data["cards"] if card["name"] == "rtx3090")
    assert rtx3090["usable_bytes"] < rtx3090["memory_bytes"]
    assert rtx3090["dtypes"] == ("bfloat16", "float32")
    assert "24259 MB" in rtx3090["sources"]["memory_mib"]
    assert {link["name"]: link["bandwidth"] for link in data["links"]}["free"] is None
