"""1F1B: after a short warm-up, every forward is followed by a backward.

    0F0 0F1  .   .  0B0 0F2 0B1  .  0B2
     .  1F0 1B0 1F1 1B1  .  1F2 1B2  .

A stage never holds more than `num_stages - stage` microbatches. Source:
Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training".
"""

from planner.schedule.actions import Action, Actions


def one_forward_one_backward(num_stages: int, num_microbatches: int) -> Actions:
    """Order of actions under 1F1B, one stage a device.

    Fewer microbatches than stages are fine: the warm-up is then shorter.

    Args:
        num_stages: At least 1.
        num_microbatches: Of one step, at least 1.

    Returns:
        The actions of every device.
    """
    return tuple(
        _stage_actions(stage, num_stages, num_microbatches)
        for stage in range(num_stages)
    )


def _stage_actions(
    stage: int, num_stages: int, num_microbatches: int
) -> tuple[Action, ...]:
    forwards = [Action(stage, "F", m) for m in range(num_microbatches)]
    backwards = [Action(stage, "B", m) for m in range(num_microbatches)]
    num_warmup = min(num_stages - stage, num_microbatches) - 1
    warmup, steady_forwards = forwards[:num_warmup], forwards[num_warmup:]
    steady_backwards = backwards[: len(steady_forwards)]
    cooldown = backwards[len(steady_forwards) :]

    pairs = zip(steady_forwards, steady_backwards, strict=True)
    return (*warmup, *(action for pair in pairs for action in pair), *cooldown)
