"""Every card works on all layers, and holds a share of each: ZeRO-3, FSDP.

Of N cards each holds 1/N of weights, gradients and optimizer states, and has its own
microbatches. Before F of a layer, and again before its B, all cards gather the
layer's weights; after its B they sum its gradients and each keeps its share. Around a
ring, for a layer of w bytes of weights and g of gradients, every card sends and
receives per microbatch

    2 (N - 1) / N * w    to gather weights, in F and in B
      (N - 1) / N * g    to sum and scatter gradients

Transfers overlap with work: while one layer is in F or B, the weights of the next one
are gathered, then the gradients of the one before are summed; never are more than two
layers gathered.

    link  |gather 2|gather 1|sum 2|gather 0|sum 1|     |sum 0|
    card           |  B 2   |   B 1   |     |  B 0   |

Sources: Rajbhandari et al., "ZeRO: Memory optimizations toward training trillion
parameter models", section 7; Zhao et al., "PyTorch FSDP: Experiences on scaling fully
sharded data parallel".

Known limitations: the ring runs at the slowest link, closed by one as slow; several
links that share a host bridge are not told apart. Parameters that layers share are
gathered once in F and once in B and stay meanwhile. Sums are in the dtype of the
gradients. F of a microbatch does not begin before B of the last one is over.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.cards import Link
from planner.memory import (
    layer_levels,
    parameters_of_stages,
    stage_parameters,
)
from planner.plan import Baseline
from planner.solve.baselines.whole import num_rounds, sizes, slowest_link
from planner.solve.setting import Setting
from planner.units import format_bytes, format_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What one card sends, and receives, for one microbatch.

    Attributes:
        gather_bytes: Weights of each layer, for one gathering [bytes].
        sum_bytes: Gradients of each layer [bytes].
        gather_s: Time of each gathering [s].
        sum_s: Time of each sum [s].
    """

    gather_bytes: tuple[float, ...]
    sum_bytes: tuple[float, ...]
    gather_s: tuple[float, ...]
    sum_s: tuple[float, ...]

    @property
    def total_bytes(self) -> float:
        """Two gatherings and one sum of every layer [bytes]."""
        return 2 * sum(self.gather_bytes) + sum(self.sum_bytes)

    @property
    def total_s(self) -> float:
        """How long the link is busy [s]."""
        return 2 * sum(self.gather_s) + sum(self.sum_s)


def sharded(setting: Setting) -> Baseline:
    """ZeRO-3 at the microbatch size that is best for it.

    Args:
        setting: Of the plan.

    Returns:
        Its entry: the quickest that fits, else the one that lacks least.
    """
    modes = {"none": (False,), "full": (True,), "auto": (False, True)}
    found = [
        _sharded(setting, size, again)
        for size in sizes(setting)
        for again in modes[setting.recompute]
    ]
    return min(found, key=lambda entry: (entry.missing_bytes, entry.step_s))


def traffic(counts: Sequence[int], setting: Setting) -> Traffic:
    """What each layer costs the links.

    Args:
        counts: Parameters of each layer, shared ones with the first that has them.
        setting: Cards, links and optimizer.

    Returns:
        Volumes and times.
    """
    cards, link = len(setting.cluster), slowest_link(setting)
    spec = setting.optimizer
    weights = [count * spec.weight_bytes for count in counts]
    gradients = [count * spec.gradient_bytes for count in counts]
    return Traffic(
        gather_bytes=tuple((cards - 1) / cards * size for size in weights),
        sum_bytes=tuple((cards - 1) / cards * size for size in gradients),
        gather_s=tuple(ring_s(size, cards, link) for size in weights),
        sum_s=tuple(ring_s(size, cards, link) for size in gradients),
    )


def ring_s(num_bytes: int, num_cards: int, link: Link) -> float:
    """Time to gather, or to sum and scatter, a tensor around a ring.

    Args:
        num_bytes: Of the whole tensor [bytes].
        num_cards: That hold a share of it.
        link: The slowest between two of them.

    Returns:
        Of num_cards - 1 transfers of a share, one after the other [s].
    """
    return (num_cards - 1) * link.transfer_s(-(-num_bytes // num_cards))


def pass_s(
    work_s: Sequence[float], gather_s: Sequence[float], sum_s: Sequence[float]
) -> float:
    """Time of F or B of all layers, with transfers beside the work.

    Args:
        work_s: Of each layer, in the order in which they are worked on [s].
        gather_s: Of their weights [s].
        sum_s: Of their gradients; 0 in F [s].

    Returns:
        Until the last layer is done and its gradients are summed [s].
    """
    link_s = 0.0
    ends_s: list[float] = []
    for place, (work, gather) in enumerate(zip(work_s, gather_s, strict=True)):
        freed_s = ends_s[place - 2] if place > 1 else 0.0
        link_s = max(link_s, freed_s) + gather
        arrived_s = link_s
        if place and sum_s[place - 1]:
            link_s = max(link_s, ends_s[-1]) + sum_s[place - 1]
        ends_s.append(max(ends_s[-1] if ends_s else 0.0, arrived_s) + work)
    return max(link_s, ends_s[-1]) + sum_s[-1] if sum_s[-1] else ends_s[-1]


def peak_bytes(setting: Setting, size: int, counts: Sequence[int], again: bool) -> int:
    """What each card holds at its fullest moment, without the reserve.

    Beside its share of the state and the activations of one microbatch, these are in
    F the weights of a layer and of the next one, in B besides the gradients of a
    layer and of the one before, which are being summed.

    Args:
        setting: Cards and optimizer.
        size: Sequences of one microbatch.
        counts: Parameters of each layer, shared ones with the first that has them.
        again: Whether every block is recomputed.

    Returns:
        The size [bytes].
    """
    spec, layers = setting.optimizer, setting.profile.layers_at(size)
    total = sum(counts)
    shared = sum(x.num_parameters for x in layers) - total
    below = highest = 0
    for i, layer in enumerate(layers):
        levels = layer_levels(layer, again and setting.may_recompute(i))
        before = counts[i - 1] if i else 0
        after = counts[i + 1] if i + 1 < len(layers) else 0
        in_forward = levels.forward_bytes + spec.weight_bytes * (counts[i] + after)
        in_backward = levels.backward_bytes + spec.weight_bytes * (counts[i] + before)
        in_backward += spec.gradient_bytes * (counts[i] + after + shared)
        highest = max(highest, below + in_forward, below + in_backward)
        below += levels.kept_bytes
    share = -(-total // len(setting.cluster)) * spec.bytes_per_parameter
    return share + shared * spec.weight_bytes + highest


def _sharded(setting: Setting, size: int, again: bool) -> Baseline:
    layers = setting.profile.layers_at(size)
    counts = parameters_of_stages([[x] for x in layers], setting.profile.ties)
    moved = traffic(counts, setting)
    speed = min(device.speed for device in setting.cluster.devices)
    forward_s = [x.forward_s / speed for x in layers]
    backward_s = [
        (x.backward_s + (x.again_s if again and setting.may_recompute(i) else 0.0))
        / speed
        for i, x in enumerate(layers)
    ]
    nothing = (0.0,) * len(layers)
    microbatch_s = (
        pass_s(forward_s, moved.gather_s, nothing)
        + pass_s(backward_s[::-1], moved.gather_s[::-1], moved.sum_s[::-1])
        + 2 * setting.profile.device.step_overhead_s / speed
    )
    parameters = stage_parameters(layers, setting.profile.ties)
    rate_s = setting.profile.device.optimizer_s_per_parameter.get(
        setting.optimizer.name, 0.0
    )
    optimizer_s = parameters / len(setting.cluster) * rate_s / speed
    need = peak_bytes(setting, size, counts, again)
    excess = {
        device.name: need + device.reserve_bytes - device.memory_bytes
        for device in setting.cluster.devices
    }
    card = max(excess, key=lambda name: excess[name])
    return Baseline(
        name="ZeRO-3",
        used_by="FSDP, DeepSpeed",
        layers_per_stage=(),
        microbatch_size=size,
        recompute="full" if again else "none",
        step_s=num_rounds(setting, size) * microbatch_s + optimizer_s,
        fits=excess[card] <= 0,
        missing_bytes=max(excess[card], 0),
        card=card,
        judgement=(
            f"a microbatch moves {format_bytes(moved.total_bytes)} through each link, "
            f"{format_seconds(moved.total_s)} beside "
            f"{format_seconds(sum(forward_s) + sum(backward_s))} of work"
        ),
    )
