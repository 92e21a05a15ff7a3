"""Profile a model: every distinct layer once, measured or computed.

Without the card the very same code runs on fake tensors, which have shapes but
no memory, and a roofline takes the place of the clock.
"""

from datetime import UTC, datetime
from typing import Literal

from planner.cards import check_dtype
from planner.chain.source import ModelSource, open_source
from planner.errors import WishError
from planner.measure.bench import describe_device, open_bench
from planner.measure.load import Load
from planner.measure.load_process import LoadedModel
from planner.measure.progress import Progress
from planner.measure.survey import Survey, Surveyed
from planner.model_profile import ModelInfo, ModelProfile, ProfiledDevice
from planner.versions import installed_versions


def profile_model(
    model_id: str,
    *,
    device: str,
    dtype: Literal["float32", "bfloat16"],
    seq_len: int,
    microbatch_sizes: tuple[int, ...],
    attention: str,
    revision: str | None,
    trust_remote_code: bool,
    progress: Progress,
    num_processes: int = 1,
) -> ModelProfile:
    """Find out what every layer of a model costs.

    Args:
        model_id: Hub id or folder.
        device: `cpu` or `cuda` measure; a card of the catalogue is computed;
            `auto` is `cuda` where there is one, else the catalogue's RTX 3090.
        dtype: Of weights and activations.
        seq_len: Tokens of a sequence.
        microbatch_sizes: Sequences of a microbatch; the first that fits is the
            default.
        attention: Attention implementation of transformers, or `auto`.
        revision: Commit or branch of the hub.
        trust_remote_code: Whether the model's own code may run.
        progress: Is told what is being done.
        num_processes: That compute at once while layers are timed on the CPU.

    Returns:
        The profile.

    Raises:
        ModelError: The model cannot be found or cut, or one of its layers does not
            fit on the device.
        WishError: The device is unknown or lacks the dtype, or the model cannot
            take `seq_len`; or several processes are to share another device.
    """
    bench = open_bench(device, progress)
    if num_processes > 1 and device != "cpu":
        msg = (
            f"--num-processes {num_processes}: only the processes of a CPU slow each "
            "other; leave it out, or measure with --device cpu"
        )
        raise WishError(msg)
    check_dtype(bench.card, dtype)
    source = open_source(
        model_id, revision=revision, trust_remote_code=trust_remote_code
    )
    _check_length(source, seq_len)
    if source.rows is not None:
        seq_len = 1  # a row of a user's module counts as one
    progress.say(f"reading {model_id}")
    model = LoadedModel(
        id=model_id,
        revision=revision,
        trust_remote_code=trust_remote_code,
        dtype=dtype,
        attention=attention,
        seq_len=seq_len,
    )
    with Load(num_processes, model) as load:
        survey = Survey(
            source,
            bench,
            load,
            dtype=dtype,
            attention=attention,
            seq_len=seq_len,
            progress=progress,
        )
        found = survey.at(microbatch_sizes)
    size = next(x for x in (*microbatch_sizes, *found) if x in found)
    device_told = describe_device(
        bench,
        optimizer_s=found[size].optimizer_s,
        overhead_s=found[size].overhead_s,
        num_processes=num_processes,
    )
    return _as_profile(model, device_told, found, size)


def _as_profile(
    model: LoadedModel, device: ProfiledDevice, found: dict[int, Surveyed], size: int
) -> ModelProfile:
    """What was found at every microbatch size; one of them is the default."""
    default = found[size]
    chain = default.chain
    others = {str(x): other.layers for x, other in found.items() if x != size}
    return ModelProfile(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=installed_versions(),
        model=ModelInfo(
            id=model.id,
            architecture=chain.architecture,
            revision=model.revision,
            num_parameters=chain.num_parameters,
        ),
        device=device,
        dtype=model.dtype,
        attention=chain.attention,
        trust_remote_code=model.trust_remote_code,
        seq_len=model.seq_len,
        microbatch_size=size,
        layers=default.layers,
        microbatches=others,
        ties=chain.ties,
        uncuttable=tuple(
            (chain.names[x.layer], chain.names[x.layer + 1]) for x in chain.uncuttable
        ),
    )


def _check_length(source: ModelSource, seq_len: int) -> None:
    config = source.config.get_text_config(decoder=True)
    longest = getattr(config, "max_position_embeddings", None)
    if isinstance(longest, int) and 0 < longest < seq_len:  # some say -1: no end
        msg = (
            f"{source.id} takes sequences of at most {longest} tokens, not {seq_len}; "
            f"use --seq-len {longest} or less"
        )
        raise WishError(msg)
