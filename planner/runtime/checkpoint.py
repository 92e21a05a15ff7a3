"""What one device writes into a checkpoint, and how it goes on from one.

Weights, buffers and optimizer states are the model's, whoever holds them: under
another plan they are read by those who hold them then. Random states are those of
the processes, and go on only under the same cut on the same number of devices.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from planner.chain.stage_module import StageModule
from planner.chain.weights import persistent_buffers
from planner.plan import Plan
from planner.runtime.checkpoint_folder import (
    Progress,
    begin_checkpoint,
    finish_checkpoint,
    load_checkpoint_plan,
    load_progress,
    partial_checkpoint,
)
from planner.runtime.checkpoint_tensors import (
    OPTIMIZER,
    RANDOM,
    check_tensors,
    optimizer_states,
    read_tensors,
    stored_tensors,
    write_tensors,
)
from planner.runtime.random_states import (
    draw_anew,
    random_states,
    set_random_states,
)
from planner.stage_optimizer import StageOptimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceState:
    """All that changes on one device while it trains.

    Attributes:
        rank: Of the process.
        device: Where its tensors are.
        modules: Its stages.
        parameters: By canonical name, each tensor once.
        owned: `id` of each parameter that this process saves.
        saves: Whether it saves buffers, too: not if it is of a further copy.
        optimizer: Of the parameters, in their order.
    """

    rank: int
    device: torch.device
    modules: Sequence[StageModule]
    parameters: Mapping[str, torch.nn.Parameter]
    owned: set[int]
    saves: bool = True
    optimizer: StageOptimizer


def save_checkpoint(
    run_dir: Path, state: DeviceState, plan: Plan, progress: Progress, keep: int
) -> None:
    """Write a checkpoint and let old ones go; all devices call it together.

    Args:
        run_dir: The run directory.
        state: Of this device.
        plan: That the run follows.
        progress: How far it is.
        keep: Complete checkpoints that stay, this one included.

    Raises:
        RunError: A device could not write; the last good checkpoint is as it was.
    """
    folder = partial_checkpoint(run_dir, progress.step)
    if state.rank == 0:
        begin_checkpoint(folder)
    dist.barrier()
    write_tensors(folder, _all_tensors(state))
    if state.rank == 0:
        finish_checkpoint(folder, plan, progress, keep)
    dist.barrier()


def restore_weights(
    checkpoint: Path,
    modules: Sequence[StageModule],
    parameters: Mapping[str, torch.nn.Parameter],
    *,
    alone: bool = False,
) -> None:
    """Read weights and buffers, in place; all devices call it together.

    Args:
        checkpoint: Its folder.
        modules: Stages whose buffers are filled.
        parameters: What else is filled, by canonical name.
        alone: Whether this process reads by itself.

    Raises:
        ArtifactError: It is damaged or of another model.
    """
    wanted = _weights(modules, parameters)
    check_tensors(checkpoint, stored_tensors(checkpoint), wanted)
    read_tensors(checkpoint, wanted, alone=alone)


def restore_training(checkpoint: Path, state: DeviceState, plan: Plan) -> None:
    """Read optimizer and random states; all devices call it together.

    Args:
        checkpoint: Its folder.
        state: Of this device; its weights are restored.
        plan: To be followed from here on.

    Raises:
        ArtifactError: It is damaged.
    """
    stored = stored_tensors(checkpoint)
    states = {
        name: {
            key: torch.empty_like(found, device=state.device)
            for key, found in optimizer_states(stored, name).items()
        }
        for name in state.parameters
    }
    wanted = {
        f"{OPTIMIZER}{name}.{key}": tensor
        for name, own in states.items()
        for key, tensor in own.items()
    }
    random = {
        key.removeprefix(f"{RANDOM}{state.rank}."): torch.empty_like(x, device="cpu")
        for key, x in stored.items()
        if key.startswith(f"{RANDOM}{state.rank}.")
    }
    wanted |= {f"{RANDOM}{state.rank}.{key}": x for key, x in random.items()}
    read_tensors(checkpoint, wanted)
    state.optimizer.restore(states.values())
    if _same_stages(plan, load_checkpoint_plan(checkpoint)):
        set_random_states(random, state.device)
    else:
        draw_anew(torch.initial_seed(), load_progress(checkpoint).step)


def _same_stages(plan: Plan, other: Plan) -> bool:
    """Whether every process draws for the same layers in the same order."""
    return (
        [stage.layers for stage in plan.stages],
        plan.schedule.actions,
        plan.num_copies,
    ) == (
        [stage.layers for stage in other.stages],
        other.schedule.actions,
        other.num_copies,
    )


def _weights(
    modules: Sequence[StageModule], parameters: Mapping[str, torch.nn.Parameter]
) -> dict[str, torch.Tensor]:
    found = {name: parameter.detach() for name, parameter in parameters.items()}
    for module in modules:
        found |= persistent_buffers(module)
    return found


def _all_tensors(state: DeviceState) -> dict[str, torch.Tensor]:
    own = {k: p for k, p in state.parameters.items() if id(p) in state.owned}
    tensors = _weights(state.modules if state.saves else (), own)
    states = state.optimizer.states(state.parameters)
    for name in own:
        for key, tensor in states[name].items():
            tensors[f"{OPTIMIZER}{name}.{key}"] = tensor
    for key, tensor in random_states(state.device).items():
        tensors[f"{RANDOM}{state.rank}.{key}"] = tensor
    return tensors
