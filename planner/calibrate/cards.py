"""The cards of a run, to plan for them again."""

import math
from dataclasses import replace

from planner.calibrate.factors import stage_sums
from planner.calibrate.links import planned_links
from planner.cards import Cluster, Device, Link
from planner.errors import WishError
from planner.model_profile import ModelProfile
from planner.plan import CardPlan, LinkPlan, Plan
from planner.stage_links import choose_links


def cards_of_run(
    plan: Plan, profile: ModelProfile, calibrated: ModelProfile
) -> Cluster:
    """The devices that a plan was made for, with calibrated links and memory.

    Args:
        plan: Of the run.
        profile: That the plan was made from.
        calibrated: The same profile, calibrated by the run.

    Returns:
        As many devices, of the same memory, reserve and speed.

    Raises:
        WishError: The plan does not say how much memory they have.
    """
    if not all(card.capacity_bytes for card in plan.cards):
        msg = (
            "the plan of the run does not say how much memory its cards have; "
            "give --gpus and --memory"
        )
        raise WishError(msg)
    own = [_device(plan, card, profile, calibrated) for card in plan.cards]
    devices = tuple(
        replace(device, name=name)
        for device, name in zip(own * plan.num_copies, plan.used_cards, strict=True)
    )
    on_cpu = plan.device_type == "cpu"
    links, origin = choose_links(devices, calibrated, None, on_cpu=on_cpu)
    planned = planned_links(plan)
    if origin == "assumed" and plan.copies_link:
        links = (_link(plan.copies_link),)  # those of a pipeline are like it
    elif origin == "assumed" and len(planned) == len(devices) - 1 > 0:
        # The run told nothing of them: what the plan took them for.
        links = tuple(_link(planned[pair]) for pair in sorted(planned))
    return Cluster(
        devices=devices, links=links, links_from=origin, type=plan.device_type
    )


def _link(link: LinkPlan) -> Link:
    bandwidth = link.bandwidth or math.inf
    return Link(name=link.name, bandwidth=bandwidth, latency_s=link.latency_s)


def _device(
    plan: Plan, card: CardPlan, profile: ModelProfile, calibrated: ModelProfile
) -> Device:
    kept_bytes = card.memory_bytes.overhead - profile.device.unpredicted_bytes
    first = plan.stages[card.stages[0]]
    return Device(
        name=card.device,
        memory_bytes=card.capacity_bytes,
        reserve_bytes=max(kept_bytes, 0) + calibrated.device.unpredicted_bytes,
        speed=stage_sums(profile, plan, first).speed,
    )
