"""What joined the devices of a run, by the transfers that could be told.

Latency and the time per byte of a link are multiplied with measured / predicted, by
the medians of the same transfers in both directions. A link that was taken for free
gets the bandwidth that explains the measured time, and one whose transfers took no
longer than a pause is free. One of which no transfer could be
told stays what the plan took it for: it never held anything up.
"""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal

from planner.calibrate.measured import Transfer
from planner.calibrate.moved import Moved
from planner.model_profile import MeasuredLink, ModelProfile, ProfiledCluster
from planner.plan import LinkPlan, Plan
from planner.schedule.dependencies import Token
from planner.stage_links import AS_GOOD_AS_FREE


def calibrated_links(
    profile: ModelProfile, plan: Plan, transfers: Sequence[Transfer]
) -> tuple[ProfiledCluster | None, tuple[Moved, ...]]:
    """Put the links of a run in the place of those that a profile knows.

    Args:
        profile: That the plan was made from.
        plan: Of the run.
        transfers: That the run could tell.

    Returns:
        The devices with their links, as the profile has them if nothing could be
        told, and what moved.
    """
    planned = planned_links(plan)
    found: dict[int, tuple[LinkPlan, Moved]] = {}
    for pair, link in planned.items():
        own = [x for x in transfers if x.pair == pair]
        predicted_s = _median([_predicted_s(plan, x.token) for x in own])
        measured_s = _median([x.time_s for x in own])
        if not own or not predicted_s + measured_s:
            continue
        moved = Moved(
            what=f"transfer, devices {pair} and {pair + 1}",
            predicted=predicted_s,
            measured=measured_s,
        )
        num_bytes = _bytes_between(profile, plan, pair)
        if num_bytes:
            found[pair] = _scaled(link, moved, num_bytes), moved
    if not found:
        return profile.cluster, ()
    links = {
        pair: found[pair][0] if pair in found else planned[pair] for pair in planned
    }
    return _cluster(profile, plan, links), tuple(moved for _, moved in found.values())


def planned_links(plan: Plan) -> dict[int, LinkPlan]:
    """What a plan took to join neighbouring devices.

    Args:
        plan: Of a run.

    Returns:
        By the lower of the two devices; empty if the plan does not say.
    """
    home = plan.device_of_stage
    return {
        min(here, there): link
        for here, there, link in zip(home, home[1:], plan.links, strict=False)
        if abs(here - there) == 1
    }


def _predicted_s(plan: Plan, token: Token) -> float:
    predicted = plan.stages[token.stage].predicted
    forward = token.kind == "F"
    return predicted.send_forward_s if forward else predicted.send_backward_s


def _median(times_s: Sequence[float]) -> float:
    return statistics.median(times_s) if times_s else 0.0


def _bytes_between(profile: ModelProfile, plan: Plan, pair: int) -> int:
    """What crosses between two devices for one microbatch [bytes]."""
    layers = profile.layers_at(plan.schedule.microbatch_size)
    home = plan.device_of_stage
    return max(
        layers[stage.last_layer].output_bytes
        for stage, here, there in zip(plan.stages, home, home[1:], strict=False)
        if {here, there} == {pair, pair + 1}
    )


def _scaled(link: LinkPlan, moved: Moved, num_bytes: int) -> LinkPlan:
    if not moved.measured:
        return dataclasses.replace(link, bandwidth=None, latency_s=0.0)
    if moved.factor is None:
        bandwidth = num_bytes / moved.measured
        return dataclasses.replace(link, bandwidth=bandwidth, latency_s=0.0)
    return dataclasses.replace(
        link,
        bandwidth=link.bandwidth and link.bandwidth / moved.factor,
        latency_s=link.latency_s * moved.factor,
    )


def _cluster(
    profile: ModelProfile, plan: Plan, links: Mapping[int, LinkPlan]
) -> ProfiledCluster:
    backend: Literal["nccl", "gloo"] = "gloo" if plan.device_type == "cpu" else "nccl"
    known = profile.cluster
    if (
        known is None
        or known.backend != backend
        or len(known.devices) < plan.num_devices
    ):
        kinds = [card.device.rpartition(":")[0] for card in plan.cards]
        known = ProfiledCluster(devices=tuple(kinds), backend=backend, links=())
    by_pair = {(link.source, link.target): link for link in known.links}
    for pair, link in links.items():
        bandwidth = link.bandwidth or AS_GOOD_AS_FREE
        for source, target in ((pair, pair + 1), (pair + 1, pair)):
            by_pair[source, target] = MeasuredLink(
                source=source,
                target=target,
                bandwidth=bandwidth,
                duplex_bandwidth=bandwidth,
                latency_s=link.latency_s,
            )
    return dataclasses.replace(
        known, links=tuple(by_pair[key] for key in sorted(by_pair))
    )
