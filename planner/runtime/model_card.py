"""The model card of what was trained: from what, on what, and how."""

from collections.abc import Mapping
from pathlib import Path

from planner.plan import Plan
from planner.runtime.failures import layer_range
from planner.versions import installed_versions

_TOLD = (
    "data",
    "lr",
    "lr_schedule",
    "warmup_steps",
    "weight_decay",
    "max_grad_norm",
    "seed",
)


def model_card(
    plan: Plan,
    options: Mapping[str, str | int | float | bool | None],
    num_steps: int,
) -> str:
    """Write a card as the Hugging Face hub shows it.

    Args:
        plan: That the model was trained by.
        options: Of the run.
        num_steps: Optimizer steps done.

    Returns:
        Markdown with a header of metadata.
    """
    told = [f"* {name}: {options[name]}" for name in _TOLD if name in options]
    stages = [f"* stage {stage.index}: {layer_range(stage)}" for stage in plan.stages]
    versions = ", ".join(
        f"{name} {version}" for name, version in installed_versions().items()
    )
    size = plan.schedule.microbatch_size
    # A folder of this machine says nothing elsewhere.
    is_here = Path(plan.model.id).exists()
    name = Path(plan.model.id).name if is_here else plan.model.id
    return "\n".join(
        [
            "---",
            "library_name: transformers",
            *([f"base_model: {name}"] if name and not is_here else []),
            "---",
            "",
            f"# {name or plan.model.architecture}, trained further",
            "",
            f"{num_steps} steps of {plan.global_batch_size} sequences of "
            f"{plan.seq_len} tokens, {plan.dtype}, {plan.optimizer.name}.",
            "",
            *told,
            "",
            f"Trained by {_pipelines(plan)} of {len(plan.stages)} stages on "
            f"{plan.num_devices} devices: {plan.schedule.name}, "
            f"{plan.schedule.num_microbatches} microbatches of {size}.",
            "",
            *stages,
            "",
            f"Versions: {versions}.",
            "",
        ]
    )


def _pipelines(plan: Plan) -> str:
    if not plan.copies:
        return "a pipeline"
    return f"{plan.num_copies} copies of a pipeline, each"
