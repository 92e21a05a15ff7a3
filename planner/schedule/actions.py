"""One action of a schedule, written as PyTorch writes it.

`2F0` is stage 2, forward, microbatch 0. F is forward, B the full backward, I
the backward for the input only and W the backward for the weights only.
"""

import re
from dataclasses import dataclass
from typing import Literal, cast

Kind = Literal["F", "B", "I", "W"]
_ACTION = re.compile(r"(\d+)([FBIW])(\d+)")


@dataclass(frozen=True, slots=True, order=True)
class Action:
    """Something one stage does for one microbatch.

    Attributes:
        stage: From 0.
        kind: `F`, `B`, `I` or `W`.
        microbatch: From 0.
    """

    stage: int
    kind: Kind
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"


# The actions of every device, in order.
Actions = tuple[tuple[Action, ...], ...]


def parse_action(text: str) -> Action:
    """Read one action.

    Args:
        text: Such as `2F0`.

    Returns:
        The action.

    Raises:
        ValueError: It is not an action.
    """
    match = _ACTION.fullmatch(text)
    if not match:
        msg = f"'{text}' is not an action such as 2F0"
        raise ValueError(msg)
    return Action(int(match[1]), cast(Kind, match[2]), int(match[3]))


def parse_actions(rows: tuple[tuple[str, ...], ...]) -> Actions:
    """Read the actions of every device.

    Args:
        rows: Per device, such as `("0F0", "0B0")`.

    Returns:
        The actions of every device.

    Raises:
        ValueError: An entry is not an action.
    """
    return tuple(tuple(parse_action(text) for text in row) for row in rows)


def format_actions(actions: Actions) -> tuple[tuple[str, ...], ...]:
    """Write the actions of every device, the inverse of `parse_actions`.

    Args:
        actions: Per device.

    Returns:
        Per device, such as `("0F0", "0B0")`.
    """
    return tuple(tuple(str(action) for action in row) for row in actions)
