"""The rules by which people divide layers over cards today.

    even layers        the same number of blocks everywhere, embedding and head on top
    less at the ends   the same, but embedding and head count as a block each
    equal parameters   the largest stage as small as possible, in parameters
    equal time         the slowest stage as quick as possible
    least bottleneck   the slowest stage or transfer as quick as possible
    device map         card by card, each filled with weights up to its share

None of them looks at the schedule, and only the last at memory, where it counts
weights alone.
"""

from itertools import pairwise

import numpy as np

from planner.memory import parameters_of_stages
from planner.solve.baselines.chains import (
    run_weights,
    smallest_largest,
    smallest_sum,
)
from planner.solve.columns import Floats
from planner.solve.setting import Cut, Setting

_ENDS = ("embedding", "head")
# What the device map adds to a card's equal share, in blocks.
_BLOCKS_ON_TOP = 1.25


def even_layers(setting: Setting) -> Cut:
    """As many blocks on every stage as on any other, as far as possible.

    So do pipelines cut by hand with PyTorch, and NeMo AutoModel: the embedding goes
    with the first blocks and the head with the last.

    Args:
        setting: Layers and cards.

    Returns:
        The legal cut whose squared numbers of blocks have the smallest sum;
        embedding and head count only if there are too few blocks.
    """
    weights = [0 if layer.kind in _ENDS else 1 for layer in setting.layers]
    if sum(weights) < setting.num_stages:
        weights = [1] * len(weights)
    return smallest_sum([run_weights(setting, weights) ** 2] * setting.num_stages)


def less_at_the_ends(setting: Setting) -> Cut:
    """One block less on the first and on the last stage.

    Source: torchtitan, `generate_llm_fqn_per_model_part`, whose weights of the
    input and the output modules are 1 by default: they count as a block each, and
    what is left over goes to the first stages.

    Args:
        setting: Layers and cards.

    Returns:
        The legal cut whose squared numbers of layers have the smallest sum.
    """
    own = run_weights(setting, [1] * len(setting.layers))
    return smallest_sum([own**2] * setting.num_stages)


def equal_parameters(setting: Setting) -> Cut:
    """The largest stage as small as possible, counted in parameters.

    Source: DeepSpeed, `partition_method="parameters"` of its PipelineModule.

    Args:
        setting: Layers and cards.

    Returns:
        Among the legal cuts with the smallest largest stage, the most even one.
    """
    own = run_weights(setting, [layer.num_parameters for layer in setting.layers])
    return _most_even([own] * setting.num_stages)


def equal_time(setting: Setting) -> Cut:
    """The slowest stage as quick as possible, in F and B of one microbatch.

    Source: torchgpipe, `balance_by_time`, which solves Barany and Grinberg, "Block
    partitions of sequences".

    Args:
        setting: Layers and cards.

    Returns:
        Among the legal cuts with the quickest slowest stage, the most even one.
    """
    return _most_even([_times(setting)] * setting.num_stages)


def least_bottleneck(setting: Setting) -> Cut:
    """The slowest stage or transfer as quick as possible.

    Source: Narayanan et al., "PipeDream: Generalized pipeline parallelism for DNN
    training", section 3.1, with one replica of each stage. With T(i, j) the time of
    F and B of layers i to j and C the transfers of an output and of its gradient,

        A(j, s) = min over i of max(A(i, s - 1), C(i), T(i + 1, j))

    Args:
        setting: Layers and cards; which card is quicker does not count.

    Returns:
        Among the legal cuts with the smallest bottleneck, the most even one.
    """
    own = _times(setting)
    limit_s = smallest_largest(
        [np.maximum(own, _entries(setting, s)) for s in range(setting.num_stages)]
    )
    limit_s *= 1 + 1e-9
    within = [
        np.where(np.maximum(own, _entries(setting, s)) <= limit_s, own, np.inf)
        for s in range(setting.num_stages)
    ]
    return smallest_sum([table**2 for table in within])


def device_map(setting: Setting) -> dict[int, tuple[int, int]]:
    """Card by card, each filled with layers until its share of weights is reached.

    Source: accelerate, `get_balanced_memory` and `infer_auto_device_map`, which
    `device_map="auto"` calls. A card takes up to total / cards + 1.25 * the largest
    block, at most its memory; the first leaves room for the largest layer, the last
    takes what is left.

    Known limitations: accelerate puts a tied head beside its embedding, which would
    make the first card the last as well; here it stays last, and its tied weights
    count once.

    Args:
        setting: Layers and cards.

    Returns:
        First and last layer by card; cards without a layer are absent.
    """
    sizes = _weights_bytes(setting)
    rooms = _rooms_bytes(setting, sizes)
    gaps = [i + 1 for i, legal in enumerate(setting.profile.legal_cuts()) if legal]
    card, used = 0, 0
    held: dict[int, tuple[int, int]] = {}
    for first, after in pairwise([0, *gaps, len(sizes)]):
        size = sum(sizes[first:after])
        while used + size > rooms[card]:
            card, used = card + 1, 0
        used += size
        held[card] = (held.get(card, (first, first))[0], after - 1)
    return held


def _most_even(tables: list[Floats]) -> Cut:
    """Of the cuts with the smallest largest stage that with the least squares."""
    limit = smallest_largest(tables) * (1 + 1e-9)
    return smallest_sum([np.where(own <= limit, own, np.inf) ** 2 for own in tables])


def _times(setting: Setting) -> Floats:
    times = [layer.forward_s + layer.backward_s for layer in setting.layers]
    return run_weights(setting, times)


def _entries(setting: Setting, stage: int) -> Floats:
    """Both transfers before a stage, by its first layer [first, 1]."""
    link = setting.link_after(stage - 1) if stage else None
    sizes = [setting.input_bytes(first) for first in range(len(setting.layers))]
    return np.array([[2 * link.transfer_s(size) if link else 0.0] for size in sizes])


def _weights_bytes(setting: Setting) -> list[int]:
    """Weights of every layer, tied ones with the first that has them [bytes]."""
    alone = [[layer] for layer in setting.layers]
    counts = parameters_of_stages(alone, setting.profile.ties)
    return [count * setting.optimizer.weight_bytes for count in counts]


def _rooms_bytes(setting: Setting, sizes: list[int]) -> list[float]:
    """What the device map puts on each card at most [bytes]."""
    layers, devices = setting.layers, setting.cluster.devices
    blocks = [
        size
        for size, layer in zip(sizes, layers, strict=True)
        if layer.kind not in _ENDS
    ]
    share = sum(sizes) / len(devices) + _BLOCKS_ON_TOP * max(blocks or sizes)
    rooms = [min(share, device.memory_bytes) for device in devices]
    rooms[0] -= max(sizes)
    return [*rooms[:-1], float("inf")]
