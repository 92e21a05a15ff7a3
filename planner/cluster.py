"""From what a user types to the cards of a cluster.

    4                       four devices like the profile's
    rtx3090:2,rtx4090:1     cards of the catalogue, as they are in the machine

Memory, reserve and speed are one value for all, one per card, or by position:
`24GiB` or `24GiB,24GiB,10GiB` or `2:10GiB,0:24GiB`. The link is one value, or one
for each pair of neighbours; what is not given is taken from the profile if it was
measured there, else assumed.

Known limitations: speed between cards is the ratio of their matrix rates. A
measured pair counts with its slower direction.
"""

import dataclasses
import re
from collections.abc import Callable
from typing import TypeVar

from planner.cards import (
    DEFAULT_CUDA_RESERVE_BYTES,
    Cluster,
    Device,
    card_called,
    card_named,
    check_dtype,
)
from planner.catalogue import Card
from planner.errors import WishError
from planner.model_profile import ModelProfile
from planner.stage_links import choose_links
from planner.units import format_bytes, parse_bytes

T = TypeVar("T", int, float)


def parse_cluster(
    gpus: str,
    profile: ModelProfile,
    *,
    memory: str | None = None,
    reserve: str | None = None,
    link: str | None = None,
    speed: str | None = None,
) -> Cluster:
    """Read the cards of a user.

    Args:
        gpus: A count, or cards of the catalogue such as `rtx3090:2,rtx4090:2`.
        profile: Whose device the count repeats and the speeds refer to.
        memory: Capacity of all or each; None for what the card has.
        reserve: Kept free on all or each; None for 1.5 GiB on CUDA, 0 on a CPU. What
            a run needed above its prediction, as a calibrated profile says, is kept
            free besides.
        link: Between neighbouring stages, one for all or one for each pair; None
            for those that the profile measured, else the usual ones of the cards, on
            a CPU `gloo`.
        speed: Relative to the profile's device, of all or each.

    Returns:
        One device a card, in the order given.

    Raises:
        ArtifactError: A file of the user's cards is wrong.
        WishError: A value cannot be read, a list has the wrong length, a card is
            unknown or lacks the profile's dtype, or a reserve takes all of a card.
    """
    devices = _like_profiled(gpus, profile) or _from_catalogue(gpus, profile, speed)
    on_cpu = gpus.strip().isdecimal() and profile.device.type == "cpu"
    count = len(devices)
    sizes = per_card(memory, count, parse_bytes, "--memory")
    reserve_bytes = 0 if on_cpu else DEFAULT_CUDA_RESERVE_BYTES
    reserves = per_card(reserve, count, parse_bytes, "--reserve")
    speeds = per_card(speed, count, _parse_speed, "--speed")
    devices = tuple(
        dataclasses.replace(
            device,
            memory_bytes=sizes.get(i, device.memory_bytes),
            reserve_bytes=reserves.get(i, reserve_bytes)
            + profile.device.unpredicted_bytes,
            speed=speeds.get(i, device.speed),
        )
        for i, device in enumerate(devices)
    )
    for i, device in enumerate(devices):
        if not device.memory_bytes and i not in sizes:
            msg = (
                f"the profile does not say how much memory {device.name} has; "
                "give --memory, for example --memory 24GiB"
            )
            raise WishError(msg)
        if i in reserves and 0 < device.memory_bytes <= device.reserve_bytes:
            msg = (
                f"--reserve {format_bytes(device.reserve_bytes)} leaves nothing of the "
                f"{format_bytes(device.memory_bytes)} of {device.name}; give less"
            )
            raise WishError(msg)
    links, links_from = choose_links(devices, profile, link, on_cpu=on_cpu)
    return Cluster(
        devices=devices,
        links=links,
        links_from=links_from,
        type="cpu" if on_cpu else "cuda",
    )


def with_one_more(cluster: Cluster, profile: ModelProfile) -> Cluster:
    """The same cluster with one more card of the last kind.

    Args:
        cluster: Of the user.
        profile: Whose host the devices of a CPU cluster share.

    Returns:
        The larger cluster; on a CPU whose memory is shared out, the shares shrink.
        Given links are continued with the last one, others are looked up again.
    """
    *_, last = cluster.devices
    kind = last.kind
    number = sum(d.kind == kind for d in cluster.devices)
    devices = (*cluster.devices, dataclasses.replace(last, name=f"{kind}:{number}"))
    host_bytes = profile.device.memory_bytes
    if cluster.type == "cpu" and last.memory_bytes == host_bytes // len(cluster):
        share_bytes = host_bytes // len(devices)
        devices = tuple(
            dataclasses.replace(device, memory_bytes=share_bytes) for device in devices
        )
    links, links_from = cluster.links, cluster.links_from
    if links_from != "given":
        on_cpu = cluster.type == "cpu"
        links, links_from = choose_links(devices, profile, None, on_cpu=on_cpu)
    elif len(links) > 1:
        links = (*links, links[-1])
    return dataclasses.replace(
        cluster, devices=devices, links=links, links_from=links_from
    )


def per_card(
    text: str | None, count: int, parse: Callable[[str], T], option: str
) -> dict[int, T]:
    """Read one value for all cards, one per card, or some by position.

    Args:
        text: `24GiB`, `24GiB,10GiB` or `1:10GiB,0:24GiB`; None for nothing.
        count: How many cards there are.
        parse: Reads one value.
        option: Name of the option, for the error.

    Returns:
        Position of a card to its value; cards without a value are absent.

    Raises:
        WishError: The number of values or a position does not match the cards.
    """
    if text is None:
        return {}
    parts = [part.strip() for part in text.split(",")]
    if all(":" in part for part in parts):
        found: dict[int, T] = {}
        for part in parts:
            position, _, value = part.partition(":")
            if not position.isdecimal() or int(position) >= count:
                msg = f"{option} {part}: there is no card {position} among {count}"
                raise WishError(msg)
            if int(position) in found:
                msg = f"{option} names card {position} twice"
                raise WishError(msg)
            found[int(position)] = parse(value)
        return found
    if len(parts) not in (1, count):
        msg = (
            f"{option} has {len(parts)} values for {count} cards; "
            f"give one value for all or {count}"
        )
        raise WishError(msg)
    values = [parse(part) for part in parts]
    return dict(enumerate(values * count if len(values) == 1 else values))


def profiled_card(profile: ModelProfile) -> Card | None:
    """The card of the catalogue that a profile was made on or for.

    Args:
        profile: Its device name may be the catalogue's or CUDA's.

    Returns:
        The card with the longest name found in it, or None.

    Raises:
        ArtifactError: A file of the user's cards is wrong.
    """
    return card_called(profile.device.name)


def _like_profiled(gpus: str, profile: ModelProfile) -> tuple[Device, ...]:
    """Devices for a plain count; empty if `gpus` is none."""
    text = gpus.strip()
    if not re.fullmatch(r"[+-]?\d+", text):
        return ()
    count = int(text)
    if count < 1:
        msg = f"--gpus {text}: at least one card is needed"
        raise WishError(msg)
    device = profile.device
    shared_by = count if device.type == "cpu" else 1
    return tuple(
        Device(
            name=f"{device.name or 'gpu'}:{i}",
            memory_bytes=device.memory_bytes // shared_by,
        )
        for i in range(count)
    )


def _from_catalogue(
    gpus: str, profile: ModelProfile, speed: str | None
) -> tuple[Device, ...]:
    cards: list[Card] = []
    for part in gpus.split(","):
        name, colon, count = (piece.strip() for piece in part.partition(":"))
        if not name or (colon and not re.fullmatch(r"0*[1-9]\d*", count)):
            msg = (
                f"--gpus '{gpus}' cannot be read at '{part}'; write a count such as 4 "
                "or cards such as rtx3090:2,rtx4090:2"
            )
            raise WishError(msg)
        card = card_named(name)
        check_dtype(card, profile.dtype)
        cards.extend([card] * int(count or 1))
    reference = _reference_card(cards, profile, speed)
    names = [card.name for card in cards]
    return tuple(
        Device(
            name=f"{card.name}:{names[:i].count(card.name)}",
            memory_bytes=card.memory_bytes,
            speed=_rate(card, profile) / _rate(reference, profile),
        )
        for i, card in enumerate(cards)
    )


def _reference_card(
    cards: list[Card], profile: ModelProfile, speed: str | None
) -> Card:
    """The card that the times of the profile belong to."""
    if card := profiled_card(profile):
        return card
    if speed is None and profile.device.name:
        msg = (
            f"the profile was made on '{profile.device.name}', which is not in the "
            f"catalogue, so the speed of {cards[0].name} beside it is unknown; give "
            f"--speed, or profile with --device {cards[0].name}"
        )
        raise WishError(msg)
    # A profile that names no device was written for the first card.
    return cards[0]


def _rate(card: Card, profile: ModelProfile) -> float:
    return card.bf16_flops if profile.dtype == "bfloat16" else card.fp32_flops


def _parse_speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0.0 < speed < float("inf"):
        msg = f"--speed '{text}' is not a number above 0"
        raise WishError(msg)
    return speed
