"""Whether a list of actions is a schedule at all.

A bad one is shown as the whole grid with the bad row marked:

    stage 1 never does B of microbatch 1
      device 0: 0F0 0F1 0B0 0B1
    > device 1: 1F0 1F1 1B0
"""

from collections import Counter

from planner.schedule.actions import Action, Actions, Kind
from planner.schedule.dependencies import Token, token_made_by, tokens_needed_by

KINDS: tuple[Kind, ...] = ("F", "B", "I", "W")
# What a stage forgot, by what it does for a microbatch. Each microbatch may have
# its own choice between B and the pair of I and W.
MISSING = {"": "F", "B": "F", "IW": "F", "F": "B", "FI": "W", "FW": "I"}


def validate_actions(
    actions: Actions, *, num_stages: int, num_microbatches: int
) -> None:
    """Check that every stage does all of its work once, in a possible order.

    A device may work on several stages, and a stage may split the backward of some
    microbatches and not of others.

    Args:
        actions: Of every device.
        num_stages: That there must be.
        num_microbatches: That there must be.

    Raises:
        ValueError: A stage is on two devices, an action is missing, strange or
            there twice, an action comes before what it needs from its own stage, or
            the devices wait for each other.
    """
    home = _device_of_each_stage(actions)
    for stage in range(num_stages):
        if stage not in home:
            msg = f"no device works on stage {stage}\n{_grid(actions)}"
            raise ValueError(msg)
    _check_counts(actions, home, num_stages, num_microbatches)
    _check_order(actions, num_stages)


def _device_of_each_stage(actions: Actions) -> dict[int, int]:
    home: dict[int, int] = {}
    for device, row in enumerate(actions):
        for action in row:
            if home.setdefault(action.stage, device) != device:
                msg = (
                    f"stage {action.stage} is on devices {home[action.stage]} and "
                    f"{device}\n{_grid(actions, device)}"
                )
                raise ValueError(msg)
    return home


def _check_counts(
    actions: Actions, home: dict[int, int], num_stages: int, num_microbatches: int
) -> None:
    count = Counter(action for row in actions for action in row)
    for action, times in count.items():
        complaint = ""
        if action.stage >= num_stages:
            complaint = f"{action} is of stage {action.stage}, but {num_stages} exist"
        elif action.microbatch >= num_microbatches:
            complaint = f"{action} is beyond the {num_microbatches} microbatches"
        elif times > 1:
            complaint = f"{action} is there {times} times"
        if complaint:
            msg = f"{complaint}\n{_grid(actions, home[action.stage])}"
            raise ValueError(msg)
    for stage in range(num_stages):
        for microbatch in range(num_microbatches):
            kinds = "".join(k for k in KINDS if count[Action(stage, k, microbatch)])
            if kinds not in ("FB", "FIW"):
                missing = MISSING.get(kinds)
                what = f"never does {missing}" if missing else f"does {kinds}"
                msg = (
                    f"stage {stage} {what} of microbatch {microbatch}"
                    f"\n{_grid(actions, home[stage])}"
                )
                raise ValueError(msg)


def _check_order(actions: Actions, num_stages: int) -> None:
    """Run every device as far as it can; whoever is left waits for ever."""
    made: set[Token] = set()
    position = [0] * len(actions)
    progress = True
    while progress:
        progress = False
        for device, row in enumerate(actions):
            while position[device] < len(row):
                action = row[position[device]]
                if not made.issuperset(tokens_needed_by(action, num_stages)):
                    break
                if token := token_made_by(action):
                    made.add(token)
                position[device] += 1
                progress = True
    stuck = []
    for device, row in enumerate(actions):
        if position[device] < len(row):
            action = row[position[device]]
            for token in tokens_needed_by(action, num_stages):
                if token not in made:
                    # Who waits for itself is to blame before who waits for others.
                    stuck.append((token.stage != action.stage, device, action, token))
    if stuck:
        _, device, action, token = min(stuck)
        msg = (
            f"device {device} waits for ever before {action}: "
            f"{token.stage}{token.kind}{token.microbatch} cannot come first"
            f"\n{_grid(actions, device)}"
        )
        raise ValueError(msg)


def _grid(actions: Actions, bad: int | None = None) -> str:
    return "\n".join(
        f"{'>' if device == bad else ' '} device {device}: {' '.join(map(str, row))}"
        for device, row in enumerate(actions)
    )
