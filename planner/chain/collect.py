"""What a model collects from modules inside its blocks, on its way to the loss.

The balance loss of a model of experts is computed at the end from what the routers
of all layers returned. Such a tensor travels along; on the later stages its module
is called again, in name only, and returns what was received. So whatever the model
does to collect it, with hooks or by hand, works there as it does in one process.
"""

from collections.abc import Sequence

from planner.chain.crossing import Collected, Replay, like
from planner.chain.observation import Call, ModuleCall, Need, Source, memory_key


def collect(
    needs: Sequence[Need], calls: Sequence[Call]
) -> tuple[tuple[Collected, ...], dict[int, tuple[Replay, ...]], list[Need]]:
    """Find the modules that values needed on later stages come from.

    Args:
        needs: Of code outside the blocks, and of blocks: these are not met.
        calls: Of blocks.

    Returns:
        What is collected, the calls of modules to repeat by call of a block, and
        the needs that cannot be met in this way.
    """
    last_call: dict[Source, int] = {}
    missing = [need for need in needs if need.inside]
    for need in needs:
        if need.inside:
            continue
        last_call[need.source] = max(need.last_call, last_call.get(need.source, -1))
    collected: list[Collected] = []
    numbers: dict[tuple[int, int], int] = {}
    for source, last in sorted(last_call.items(), key=lambda x: x[0].call):
        found = _origin(source, calls, last)
        if found is None:
            missing.append(Need(source=source, last_call=last))
        else:
            numbers[source.call, source.memory] = len(collected)
            collected.append(found)
    replays = {
        number: _replays(number, calls[number].modules, numbers)
        for number in sorted({call for call, _ in numbers})
    }
    return tuple(collected), replays, missing


def _origin(source: Source, calls: Sequence[Call], last: int) -> Collected | None:
    """The first module that returned the value."""
    if source.kind != "made":
        return None
    before: dict[str, int] = {}
    for module in calls[source.call].modules:
        for path, tensor in module.outputs:
            if memory_key(tensor) == source.memory:
                return Collected(
                    call=source.call,
                    source=(module.path, before.get(module.path, 0), path),
                    last_call=last,
                    tensor=like(tensor),
                )
        before[module.path] = before.get(module.path, 0) + 1
    return None


def _replays(
    call: int, modules: Sequence[ModuleCall], numbers: dict[tuple[int, int], int]
) -> tuple[Replay, ...]:
    """All calls of modules that returned one of the values."""
    found = []
    for module in modules:
        outputs = tuple(
            (path, numbers[call, memory_key(tensor)])
            for path, tensor in module.outputs
            if (call, memory_key(tensor)) in numbers
        )
        if outputs:
            found.append(
                Replay(module=module.path, template=module.template, outputs=outputs)
            )
    return tuple(found)
