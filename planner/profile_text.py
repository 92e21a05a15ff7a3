"""A profile for the terminal: one line for each run of equal layers."""

from itertools import groupby

from planner.model_profile import LayerProfile, ModelProfile
from planner.table import format_table
from planner.units import format_bytes, format_count, format_seconds

_HEADER = ("layers", "parameters", "F", "B", "activation", "output")


def describe_profile(profile: ModelProfile) -> str:
    """Write what a profile says, neighbours of equal cost on one line.

    Args:
        profile: Any profile.

    Returns:
        A heading and a table, without a newline at the end; all figures are of
        one layer and one microbatch.
    """
    runs = [list(run) for _, run in groupby(profile.layers, key=_cells)]
    rows = [_row(len(run), run[0]) for run in runs]
    model, device = profile.model, profile.device
    heading = (
        f"{model.id or 'model'}: {format_count(model.num_parameters)} parameters in "
        f"{len(profile.layers)} layers, {device.kind} for {device.name or 'a device'}, "
        f"{profile.dtype}, sequences of {profile.seq_len} tokens, "
        f"microbatches of {profile.microbatch_size}"
    )
    return f"{heading}\n\n{format_table(_HEADER, rows)}"


def _row(count: int, layer: LayerProfile) -> tuple[str, ...]:
    kind, *figures = _cells(layer)
    return (f"{count} x {kind}", *figures)


def _cells(layer: LayerProfile) -> tuple[str, ...]:
    """What is said of a layer; some bytes of difference are not."""
    return (
        layer.kind,
        format_count(layer.num_parameters),
        format_seconds(layer.forward_s),
        format_seconds(layer.backward_s),
        format_bytes(layer.activation_bytes),
        format_bytes(layer.output_bytes),
    )
