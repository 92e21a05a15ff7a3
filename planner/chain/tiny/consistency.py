"""Fields that must fit each other once each has been shrunk by itself."""

from collections.abc import Mapping
from typing import Any

from planner.chain.tiny.rules import POSITIONS


def agree(fields: Mapping[str, Any], tiny: Mapping[str, Any]) -> dict[str, Any]:
    """Widths of heads that are parts or sums of others stay so.

    Args:
        fields: Of the large configuration.
        tiny: Of the tiny one, each field by itself.

    Returns:
        The fields of the tiny one that change.
    """
    rope, nope = fields.get("qk_rope_head_dim"), fields.get("qk_nope_head_dim")
    if not rope or not nope:
        return {}
    changed = {}
    for name in ("head_dim", "qk_head_dim"):
        if fields.get(name) == rope:
            changed[name] = tiny["qk_rope_head_dim"]
        elif fields.get(name) == rope + nope:
            changed[name] = tiny["qk_rope_head_dim"] + tiny["qk_nope_head_dim"]
    return changed


def shrink_rope(rope: Mapping[str, Any], head_dim: int) -> dict[str, Any]:
    """Rotary settings for a tiny head; also when each kind of layer has its own.

    Args:
        rope: Of the large configuration.
        head_dim: Width of a head of the tiny one.

    Returns:
        The settings with lists cut to the width of the head.
    """
    share = float(rope.get("partial_rotary_factor", 1.0))
    half = int(head_dim * share) // 2
    tiny: dict[str, Any] = {}
    for key, value in rope.items():
        if isinstance(value, Mapping):
            tiny[key] = shrink_rope(value, head_dim)
        elif key == "original_max_position_embeddings":
            tiny[key] = min(value, POSITIONS // 2)
        elif key in ("short_factor", "long_factor"):
            tiny[key] = list(value)[:half]
        elif key == "mrope_section":
            part = half // len(value)
            rest = [part] * (len(value) - 1)
            tiny[key] = [half - sum(rest), *rest]
        else:
            tiny[key] = value
    return tiny
