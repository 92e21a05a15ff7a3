"""The file that cards are written in."""

import itertools
import re
import tomllib
from pathlib import Path

import pytest

import planner
from planner.cards import CARDS, LINKS
from planner.catalogue import FIGURES, Card, read_cards
from planner.errors import ArtifactError
from planner.units import GIB, MIB

OURS = Path(planner.__file__).with_name("cards.toml")
SMALL = {
    "memory_mib": "8000",
    "bf16_tflops": "50",
    "fp32_tflops": "25.5",
    "bandwidth_gb_s": "400",
}


def cards_in(tmp_path: Path, text: str) -> dict[str, Card]:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return read_cards(path)


def one_card(tmp_path: Path, **changes: str | None) -> Card:
    """The small card with keys changed, or left out for None."""
    keys = {key: value for key, value in (SMALL | changes).items() if value}
    lines = [f"{key} = {value}" for key, value in keys.items()]
    return cards_in(tmp_path, "\n".join(["[small]", *lines]))["small"]


# --- our own file -------------------------------------------------------------


@pytest.mark.parametrize("card", CARDS.values(), ids=lambda card: card.name)
def test_every_figure_of_every_card_has_one_source(card):
    assert set(card.sources) == set(FIGURES)
    written = tomllib.loads(OURS.read_text())[card.name]["sources"].values()
    assert sorted(itertools.chain(*written)) == sorted(FIGURES)


def test_the_cards_that_people_own_are_there():
    names = "rtx3060 rtx3080 rtx3090 rtx3090ti rtx4080 rtx4090 rtx5090 a4000 a5000"
    names += " a6000 a10g t4 l4 l40s v100-16gb v100-32gb a100-40gb a100 h100 h200"
    assert set(names.split()) <= set(CARDS)


@pytest.mark.parametrize("card", CARDS.values(), ids=lambda card: card.name)
def test_memory_is_less_than_the_name_says_and_usable_memory_less_again(card):
    named_gb = re.search(r"(\d+) GB", card.title)
    if named_gb:
        assert 0.9 * int(named_gb[1]) < card.memory_bytes / GIB < int(named_gb[1])
    assert 300 * MIB < card.memory_bytes - card.usable_bytes < 600 * MIB


@pytest.mark.parametrize("card", CARDS.values(), ids=lambda card: card.name)
def test_rates_of_a_card_agree_with_each_other(card):
    has_bf16 = float(card.compute_capability) >= 8.0
    assert (card.bf16_flops > 0) == has_bf16
    # Desktop cards accumulate in fp32 at half the rate, twice that of plain fp32.
    if card.desktop:
        assert card.bf16_flops / card.fp32_flops == pytest.approx(2.0, rel=0.01)
    elif has_bf16:
        assert card.bf16_flops / card.fp32_flops > 1.99
    # A product of 4096 x 4096 matrices is bound by the matrix units on each.
    assert card.fp32_flops / card.memory_bandwidth < 4096 / 6


@pytest.mark.parametrize("card", CARDS.values(), ids=lambda card: card.name)
def test_every_card_has_a_link_by_its_name(card):
    assert f"pcie{card.pcie}" in LINKS


# Dense bf16 rates with fp32 accumulation as others count them, TFLOP/s.
KNOWN = {"rtx3090": 71, "rtx4090": 165.2, "rtx5090": 209.5, "a6000": 154.8, "t4": 0}
KNOWN |= {"a10g": 70, "l4": 121, "l40s": 362, "a100": 312, "h100": 989, "h200": 989}


@pytest.mark.parametrize("name", KNOWN)
def test_the_matrix_rate_is_dense_and_accumulates_in_fp32(name):
    assert CARDS[name].bf16_flops == pytest.approx(KNOWN[name] * 1e12)


# --- a user's file ------------------------------------------------------------


def test_a_card_needs_four_figures(tmp_path):
    assert one_card(tmp_path) == Card(
        name="small",
        title="small",
        memory_bytes=8000 * MIB,
        bf16_flops=50e12,
        fp32_flops=25.5e12,
        memory_bandwidth=400e9,
    )


def test_everything_else_can_be_said(tmp_path):
    card = one_card(
        tmp_path,
        title='"Small Card"',
        aliases='["tiny-card"]',
        context_mib="300",
        compute_capability='"8.9"',
        pcie='"4x8"',
        nvlink_gb_s="56.25",
        desktop="true",
        sources='{"a measurement" = ["memory_mib", "bf16_tflops"]}',
    )
    assert (card.title, card.aliases) == ("Small Card", ("tiny-card",))
    assert card.usable_bytes == (8000 - 300) * MIB
    assert (card.compute_capability, card.pcie, card.desktop) == ("8.9", "4x8", True)
    assert card.nvlink_bandwidth == 56.25e9
    assert card.sources == dict.fromkeys(["memory_mib", "bf16_tflops"], "a measurement")


def test_the_example_of_the_documentation_is_complete(tmp_path):
    text = (Path(__file__).parents[1] / "docs" / "cards.md").read_text()
    (example,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (card,) = cards_in(tmp_path, example).values()
    assert card.name == "rtx4080super"
    assert set(example.split()) >= {*FIGURES, "title", "aliases", "desktop"}


def test_a_card_without_bfloat16_has_the_other_dtype(tmp_path):
    assert one_card(tmp_path, bf16_tflops="0").dtypes == ("float32",)
    assert one_card(tmp_path).dtypes == ("bfloat16", "float32")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"memory_mib": None}, "memory_mib is missing"),
        ({"memory_mib": "0"}, "memory_mib is 0, not a number above 0"),
        ({"memory_mib": '"24 GiB"'}, "memory_mib is '24 GiB', not a number"),
        ({"memory_mib": "inf"}, "memory_mib is inf, not a number"),
        ({"bf16_tflops": "nan"}, "bf16_tflops is nan, not a number"),
        ({"bf16_tflops": "-1"}, "bf16_tflops is -1, not a number"),
        ({"fp32_tflops": "true"}, "fp32_tflops is True, not a number"),
        ({"bf16_tflop": "1"}, "unknown key bf16_tflop; did you mean bf16_tflops?"),
        ({"colour": "1"}, "unknown key colour; known: title, aliases, memory_mib"),
        ({"context_mib": "8000"}, "context_mib 8000.0 leaves nothing of memory_mib"),
        ({"pcie": '"6x16"'}, "pcie is '6x16', not generation and lanes"),
        ({"pcie": "4"}, 'pcie is 4, not generation and lanes such as "4x16"'),
        ({"compute_capability": "8.6"}, "compute_capability is 8.6, not a text"),
        ({"title": '""'}, "title is '', not a text in quotes"),
        ({"desktop": "1"}, "desktop is 1, neither true nor false"),
        ({"aliases": '"x"'}, "aliases is 'x', not a list of names"),
        ({"aliases": '["RTX 1"]'}, "not a list of names"),
        ({"sources": '"x"'}, "sources is 'x', not a table"),
        ({"sources": '{"x" = ["speed"]}'}, "sources: 'speed' is none of memory_mib"),
    ],
)
def test_a_bad_key_is_named_with_its_file_and_card(tmp_path, changes, words):
    with pytest.raises(ArtifactError) as caught:
        one_card(tmp_path, **changes)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'mine.toml'}: card 'small': ")
    assert words in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[small\n", "is not TOML"),
        ("memory_mib = 8000\n", "card 'memory_mib': a card is a table"),
        ("[RTX1]\n", "card 'RTX1': a name is lower-case"),
        ("[cuda]\n", "card 'cuda': a name is"),
        ("[4]\n", "card '4': a name is"),
        ('["my card:2"]\n', "a name is lower-case"),
    ],
)
def test_what_is_no_card_is_refused(tmp_path, text, words):
    with pytest.raises(ArtifactError, match=words):
        cards_in(tmp_path, text)


def test_a_file_that_is_not_there_or_not_text_is_refused(tmp_path):
    with pytest.raises(ArtifactError, match=r"cannot read the cards in .*: No such"):
        read_cards(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ArtifactError, match=r"bytes\.toml is not TOML"):
        read_cards(tmp_path / "bytes.toml")
