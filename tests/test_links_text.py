"""Measured links as a person reads them."""

from planner.links_text import describe_cluster
from planner.model_profile import MeasuredLink, ProfiledCluster


def link(source, target, bandwidth, latency_s=20e-6):
    return MeasuredLink(
        source=source,
        target=target,
        bandwidth=bandwidth,
        duplex_bandwidth=bandwidth / 2,
        latency_s=latency_s,
    )


def test_rows_send_and_columns_receive():
    cluster = ProfiledCluster(
        devices=("RTX 3090", "RTX 4090"),
        backend="nccl",
        links=(link(0, 1, 12.4e9), link(1, 0, 0.5e9, latency_s=3e-3)),
    )
    assert describe_cluster(cluster).splitlines() == [
        "2 devices over nccl",
        "0: RTX 3090",
        "1: RTX 4090",
        "",
        "GB/s one way, and while as much goes the other way",
        "from / to            0           1",
        "---------  -----------  ----------",
        "0                    -  12.4 | 6.2",
        "1          0.50 | 0.25           -",
        "",
        "time of the smallest transfer",
        "from / to        0        1",
        "---------  -------  -------",
        "0                -  20.0 us",
        "1          3.00 ms        -",
    ]


def test_a_pair_that_is_missing_is_a_dash():
    cluster = ProfiledCluster(devices=("a", "b"), backend="gloo", links=())
    assert describe_cluster(cluster).splitlines()[-1].split() == ["1", "-", "-"]
