"""What joins each card of a cluster to the next: given, measured or assumed.

    --link pcie4x8                       the same everywhere
    --link pcie4x8,12GB/s,10us,pcie3x4   one for each pair of neighbouring cards
    nothing                              as the profile measured it between so many
                                         cards, else as is usual for such cards

Known limitations: a measured pair counts with its slower direction.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

from planner.cards import (
    LINKS,
    Cluster,
    Device,
    Link,
    LinksFrom,
    card_called,
    default_link,
    parse_link,
)
from planner.errors import WishError
from planner.model_profile import MeasuredLink, ModelProfile

# A comma before a latency belongs to the link, every other one parts two links.
_BETWEEN_LINKS = re.compile(r",(?!\s*\d+(?:\.\d+)?(?:us|ms|s)\s*(?:,|$))")

# A profile's way to write an infinite bandwidth, which JSON does not have [bytes/s].
AS_GOOD_AS_FREE = 1e15


def parse_links(text: str, num_pairs: int) -> tuple[Link, ...]:
    """Read one link for all pairs of neighbours, or one for each.

    Args:
        text: As the user wrote it.
        num_pairs: How many pairs there are.

    Returns:
        One link, or one a pair.

    Raises:
        WishError: An entry is no link, or their number does not match.
    """
    links = tuple(parse_link(part.strip()) for part in _BETWEEN_LINKS.split(text))
    if len(links) not in (1, num_pairs):
        pairs = "1 pair" if num_pairs == 1 else f"{num_pairs} pairs"
        msg = (
            f"--link has {len(links)} values for {pairs} of neighbouring cards; "
            f"give one value for all or one for each pair"
        )
        raise WishError(msg)
    return links


def choose_links(
    devices: tuple[Device, ...],
    profile: ModelProfile,
    given: str | None,
    *,
    on_cpu: bool,
) -> tuple[tuple[Link, ...], LinksFrom]:
    """Decide what joins each card to the next.

    Args:
        devices: In the order of the stages.
        profile: That may hold measured links.
        given: What the user said, if anything.
        on_cpu: Whether the devices are processes on a CPU.

    Returns:
        One link for all or one a pair of neighbours, and how they are known.

    Raises:
        WishError: What the user said cannot be read.
    """
    if given is not None:
        return parse_links(given, len(devices) - 1), "given"
    if _were_measured(devices, profile, on_cpu=on_cpu):
        links = _measured_links(profile, range(len(devices)))
        if links:
            return links, "measured"
    return _assumed_links(devices, on_cpu=on_cpu), "assumed"


def links_in_order(
    cluster: Cluster, profile: ModelProfile, positions: Sequence[int]
) -> tuple[Link, ...]:
    """What joins some cards of a cluster when they are put in another order.

    Args:
        cluster: Whose links are measured or assumed.
        profile: That it was made with.
        positions: Of the cards in the cluster, in their new order.

    Returns:
        One link a pair of neighbours; one for a card alone.
    """
    if cluster.links_from == "measured" and (
        links := _measured_links(profile, positions)
    ):
        return links
    devices = tuple(cluster.devices[i] for i in positions)
    return _assumed_links(devices, on_cpu=cluster.type == "cpu")


def links_note(cluster: Cluster, profile: ModelProfile) -> str:
    """What a user should know about the choice of the links.

    Args:
        cluster: Of the user.
        profile: That may hold measured links.

    Returns:
        One line; empty if there is nothing to say.
    """
    measured = profile.cluster
    if measured is None or cluster.links_from == "given" or len(cluster) == 1:
        return ""
    count = len(measured.devices)
    if cluster.links_from == "measured":
        part = "" if count == len(cluster) else f", of its first {len(cluster)} devices"
        return f"using the links that the profile measured{part}"
    assumed = ", ".join(dict.fromkeys(link.name for link in cluster.links))
    return (
        f"the links in the profile are of {count} devices over {measured.backend}, "
        f"not of these {len(cluster)}: assuming {assumed}; measure them with "
        "planner profile --links, or say --link"
    )


def load_note(cluster: Cluster, profile: ModelProfile) -> str:
    """What a user should know about times that were measured on a CPU.

    Args:
        cluster: Of the user.
        profile: Whose times may be of another number of processes.

    Returns:
        One line; empty if there is nothing to say.
    """
    count, device = len(cluster), profile.device
    measured = cluster.type == device.type == "cpu" and device.kind == "measured"
    if not measured or device.num_processes == count:
        return ""
    were = "1 process" if device.num_processes == 1 else f"{device.num_processes}"
    return (
        f"warning: the profile was taken while {were} computed, and this plan has "
        f"{count}, which slow each other otherwise; profile again with "
        f"--num-processes {count}"
    )


def _assumed_links(devices: tuple[Device, ...], *, on_cpu: bool) -> tuple[Link, ...]:
    # One card has no neighbour yet, but may get one like itself.
    neighbours = tuple(pairwise(devices)) or ((devices[0], devices[0]),)
    return tuple(_assumed_link(*pair, on_cpu=on_cpu) for pair in neighbours)


def _assumed_link(first: Device, second: Device, *, on_cpu: bool) -> Link:
    if on_cpu:
        return LINKS["gloo"]
    kinds = [device.kind for device in (first, second)]
    return default_link(*map(card_called, kinds))


def _were_measured(
    devices: tuple[Device, ...], profile: ModelProfile, *, on_cpu: bool
) -> bool:
    """Whether the profile's first devices are the user's."""
    cluster = profile.cluster
    if cluster is None or cluster.backend != ("gloo" if on_cpu else "nccl"):
        return False
    if len(cluster.devices) < len(devices):
        return False
    usual = profile.device.name or "gpu"
    for device, found in zip(devices, cluster.devices, strict=False):
        # A count means the devices that were there; named cards must be they.
        kind = device.kind
        if kind != usual and card_called(kind) != card_called(found):
            return False
    return True


def _measured_links(
    profile: ModelProfile, positions: Sequence[int]
) -> tuple[Link, ...]:
    """Between the profile's devices in a row; none if one pair is missing."""
    measured = profile.cluster.links if profile.cluster else ()
    directions = {(link.source, link.target): link for link in measured}
    links = []
    for here, after in pairwise(positions):
        there, back = directions.get((here, after)), directions.get((after, here))
        if not there or not back or not there.duplex_bandwidth * back.duplex_bandwidth:
            return ()
        links.append(_link_of(there, back))
    return tuple(links)


def _link_of(there: MeasuredLink, back: MeasuredLink) -> Link:
    """Both directions as one link; outputs and gradients travel at the same time."""
    bandwidth = min(there.duplex_bandwidth, back.duplex_bandwidth)
    latency_s = max(there.latency_s, back.latency_s)
    if bandwidth >= AS_GOOD_AS_FREE and not latency_s:
        return LINKS["free"]
    name = f"{bandwidth / 1e9:.2f}GB/s,{latency_s * 1e6:.0f}us"
    return Link(name=name, bandwidth=bandwidth, latency_s=latency_s)
