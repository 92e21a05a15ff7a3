"""What an action waits for.

    F of stage s    for F of stage s - 1
    B, I of stage s for F of stage s, and B or I of stage s + 1
    W of stage s    for I of stage s

B and I both make the gradient that the stage before waits for, so what is
waited for is a `Token`: the output (`F`) or the input gradient (`B`) of a stage
for a microbatch.
"""

from typing import Literal, NamedTuple

from planner.schedule.actions import Action


class Token(NamedTuple):
    """Something made by one action and waited for by another.

    Attributes:
        stage: Whose action makes it.
        kind: `F` for the output, `B` for the gradient of the input.
        microbatch: From 0.
    """

    stage: int
    kind: Literal["F", "B"]
    microbatch: int


def token_made_by(action: Action) -> Token | None:
    """What an action makes.

    Args:
        action: Any action.

    Returns:
        The token, or nothing for W, whose gradients no other action waits for.
    """
    if action.kind == "W":
        return None
    kind: Literal["F", "B"] = "F" if action.kind == "F" else "B"
    return Token(action.stage, kind, action.microbatch)


def tokens_needed_by(action: Action, num_stages: int) -> tuple[Token, ...]:
    """What must exist before an action can start.

    Args:
        action: Any action.
        num_stages: Of the whole pipeline.

    Returns:
        The tokens, those of other stages first.
    """
    stage, kind, microbatch = action.stage, action.kind, action.microbatch
    if kind == "F":
        return (Token(stage - 1, "F", microbatch),) if stage > 0 else ()
    if kind == "W":
        return (Token(stage, "B", microbatch),)
    own = Token(stage, "F", microbatch)
    if stage == num_stages - 1:
        return (own,)
    return (Token(stage + 1, "B", microbatch), own)
