"""How many parameters a run of layers holds."""

from collections.abc import Iterable, Sequence

from planner.model_profile import LayerProfile


def shared_parameters(
    layers: Sequence[LayerProfile], ties: Iterable[tuple[str, str]]
) -> int:
    """Parameters that a run of layers would count twice because of ties.

    Args:
        layers: The run, in order.
        ties: Pairs of layer names that share parameters.

    Returns:
        How many parameters to subtract from the sum of `num_parameters`.
    """
    position = {layer.name: index for index, layer in enumerate(layers)}
    shared: dict[int, int] = {}
    for pair in ties:
        here = sorted(position[name] for name in pair if name in position)
        if len(here) == 2 and here[0] != here[1]:
            first, second = (layers[index] for index in here)
            shared[here[1]] = second.num_tied_parameters or min(
                first.num_parameters, second.num_parameters
            )
    return sum(shared.values())


def stage_parameters(
    layers: Sequence[LayerProfile], ties: Iterable[tuple[str, str]]
) -> int:
    """Parameters of a stage, those shared within it counted once.

    Args:
        layers: Of the stage, in order.
        ties: Pairs of layer names that share parameters.

    Returns:
        How many parameters the stage holds.
    """
    total = sum(layer.num_parameters for layer in layers)
    return total - shared_parameters(layers, ties)


def parameters_of_stages(
    runs: Sequence[Sequence[LayerProfile]], ties: Sequence[tuple[str, str]]
) -> list[int]:
    """Parameters of each stage of one device, those shared by them counted once.

    Args:
        runs: Layers of each stage.
        ties: Pairs of layer names that share parameters.

    Returns:
        How many; shared ones with the first stage that has them.
    """
    counts: list[int] = []
    held: list[LayerProfile] = []
    for run in runs:
        held += run
        counts.append(stage_parameters(held, ties) - sum(counts))
    return counts
