"""Measured links for the terminal: who sends how fast to whom.

    GB/s one way, and while as much goes the other way
    from / to            0            1
    ---------  -----------  -----------
    0                    -  12.4 | 10.9
    1          12.5 | 10.9            -

A row for each sender, a column for each receiver.
"""

from collections.abc import Callable

from planner.model_profile import MeasuredLink, ProfiledCluster
from planner.table import format_table
from planner.units import format_seconds


def describe_cluster(cluster: ProfiledCluster) -> str:
    """Write what was measured between the devices of a machine.

    Args:
        cluster: The devices and their links.

    Returns:
        The devices, a matrix of bandwidths and one of latencies, without a newline
        at the end.
    """
    devices = [f"{i}: {name}" for i, name in enumerate(cluster.devices)]
    return "\n\n".join(
        (
            f"{len(devices)} devices over {cluster.backend}\n" + "\n".join(devices),
            "GB/s one way, and while as much goes the other way\n"
            + _matrix(cluster, _rates),
            "time of the smallest transfer\n"
            + _matrix(cluster, lambda link: format_seconds(link.latency_s)),
        )
    )


def _rates(link: MeasuredLink) -> str:
    return f"{_gigabytes(link.bandwidth)} | {_gigabytes(link.duplex_bandwidth)}"


def _gigabytes(rate: float) -> str:
    return f"{rate / 1e9:.1f}" if rate >= 1e9 else f"{rate / 1e9:.2f}"


def _matrix(cluster: ProfiledCluster, cell: Callable[[MeasuredLink], str]) -> str:
    cells = {(link.source, link.target): cell(link) for link in cluster.links}
    places = range(len(cluster.devices))
    rows = [
        [str(source), *(cells.get((source, target), "-") for target in places)]
        for source in places
    ]
    return format_table(["from / to", *map(str, places)], rows)
