"""Everything a run needs, checked and written down before any process starts.

The data is read and tokenised once, here; every process then reads the same
rows from one file, so no two of them can disagree.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from planner import artifact
from planner.chain.layers import find_chain
from planner.chain.source import ModelSource, open_source, open_tokenizer
from planner.chain.weights import has_weights
from planner.errors import DataError, ModelError, RunError
from planner.plan import Plan
from planner.plan_check import check_layers, check_schedule
from planner.runtime.cut_check import check_before_training
from planner.runtime.data import Sequences, load_sequences, steps_per_epoch
from planner.runtime.options import RunOptions
from planner.runtime.own_rows import OwnRows
from planner.runtime.resuming import find_beginning
from planner.runtime.room import check_room
from planner.runtime.text_files import BUILTIN
from planner.stage_optimizer import check_optimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What every process of a run is told.

    Attributes:
        plan: The plan.
        options: Of the run, as `RunOptions.as_record` writes them.
        num_steps: Optimizer steps in all.
        pretrained: Load the checkpoint rather than draw weights.
        sequences_path: The data, as safetensors.
        evaluation_path: What is evaluated, in the same form, if anything.
        has_own_rows: Whether they are what a user's module brings.
        work_dir: A folder for messages between the processes.
        checkpoint: Where it goes on from, if anywhere.
        num_done: Steps that were done there.
    """

    plan: Plan
    options: dict[str, Any] = field(default_factory=dict)
    num_steps: int
    pretrained: bool
    sequences_path: str
    evaluation_path: str | None = None
    work_dir: str
    has_own_rows: bool = False
    checkpoint: str | None = None
    num_done: int = 0

    def run_options(self) -> RunOptions:
        """The options as a value.

        Returns:
            What the user chose.
        """
        options = dict(self.options)
        for name in ("output_dir", "resume"):
            if options.get(name) is not None:
                options[name] = Path(options[name])
        return RunOptions(**options)

    def sequences(self) -> Sequences | OwnRows:
        """Read the data that `prepare_job` wrote.

        Returns:
            All rows, shape (rows, seq_len) for token ids.
        """
        if self.has_own_rows:
            rows = load_file(self.sequences_path)
            return OwnRows(rows=rows, source=self.plan.model.id)
        return _read_sequences(self.sequences_path, str(self.options["data"]))

    def evaluation(self) -> Sequences | None:
        """Read what the model is evaluated on.

        Returns:
            All rows; None if there is nothing.
        """
        if self.evaluation_path is None:
            return None
        return _read_sequences(self.evaluation_path, str(self.options["eval_data"]))

    def save(self) -> Path:
        """Write the job into its work folder.

        Returns:
            The file.
        """
        path = Path(self.work_dir) / "job.json"
        artifact.save(self, path)
        return path


def _read_sequences(path: str, source: str) -> Sequences:
    tensors = load_file(path)
    return Sequences(
        input_ids=tensors["input_ids"],
        labels=tensors["labels"],
        attention_mask=tensors["attention_mask"],
        has_padding=bool((tensors["attention_mask"] == 0).any()),
        source=source,
    )


def load_job(path: Path) -> Job:
    """Read a job.

    Args:
        path: The file that `Job.save` wrote.

    Returns:
        The job.

    Raises:
        ArtifactError: It cannot be read.
    """
    return artifact.load(path, Job)


def prepare_job(
    plan: Plan,
    options: RunOptions,
    work_dir: Path,
    say: Callable[[str], None] = lambda line: None,
) -> Job:
    """Check a plan against the model, the machine and the data.

    Args:
        plan: The plan.
        options: What the user chose.
        work_dir: An empty folder for messages between the processes.
        say: Takes a line that the user should see.

    Returns:
        The job, its data written.

    Raises:
        ModelError: The model cannot be found, has no weights to load, or does not
            train the same when it is cut.
        ArtifactError: The plan's layers are not the model's, or its order cannot
            run.
        DataError: The data cannot be used.
        WishError: The plan's optimizer cannot be run.
        RunError: The plan needs cards that this machine does not have, or the disk
            has no room for checkpoints and model.
    """
    _check_devices(plan)
    source = open_planned_source(plan)
    chain = find_chain(source, attention=plan.attention)
    check_layers(plan, chain.names)
    for stage in plan.stages:
        chain.check_cut(stage.first_layer)
    check_schedule(plan)
    check_optimizer(plan.optimizer.name)
    if options.check and (line := check_before_training(plan, source)):
        say(line)
    pretrained = has_weights(source) if options.init is None else False
    if options.init == "pretrained":
        pretrained = True
        if not has_weights(source):
            msg = (
                f"{source.id} has no weights in safetensors; train from random "
                "weights with --init random"
            )
            raise ModelError(msg)
    sequences = _load_rows(source, plan, options)
    path = _write(sequences, work_dir / "sequences.safetensors", say)
    evaluation_path = None
    if options.eval_data is not None:
        evaluation = _load_evaluation(source, plan, options)
        evaluation_path = _write(evaluation, work_dir / "eval.safetensors", say)
    per_epoch = steps_per_epoch(len(sequences), plan.global_batch_size)
    num_steps = options.num_steps(per_epoch)
    begun = find_beginning(plan, options, num_steps, len(sequences), say)
    check_room(plan, options, num_steps - (begun.num_done if begun else 0))
    return Job(
        plan=plan,
        options=options.as_record(),
        num_steps=num_steps,
        pretrained=pretrained,
        sequences_path=path,
        evaluation_path=evaluation_path,
        has_own_rows=isinstance(sequences, OwnRows),
        work_dir=str(work_dir),
        checkpoint=None if begun is None else str(begun.checkpoint),
        num_done=0 if begun is None else begun.num_done,
    )


def _load_rows(
    source: ModelSource, plan: Plan, options: RunOptions
) -> Sequences | OwnRows:
    if source.rows is not None:
        if options.data != BUILTIN:
            msg = (
                f"{source.id} trains on what its sample_inputs() returns; leave out "
                f"--data {options.data}"
            )
            raise DataError(msg)
        return OwnRows(rows=source.rows, source=source.id)
    return _load_tokens(source, plan, options.data, options)


def _load_evaluation(source: ModelSource, plan: Plan, options: RunOptions) -> Sequences:
    if source.rows is not None:
        msg = (
            f"{source.id} trains on what its sample_inputs() returns and cannot be "
            "evaluated on files; leave out --eval-data"
        )
        raise DataError(msg)
    return _load_tokens(source, plan, str(options.eval_data), options)


def _write(
    sequences: Sequences | OwnRows, path: Path, say: Callable[[str], None]
) -> str:
    for note in sequences.notes:
        say(note)
    save_file(sequences.tensors(), path)
    return str(path)


def _load_tokens(
    source: ModelSource, plan: Plan, data: str, options: RunOptions
) -> Sequences:
    tokenizer = open_tokenizer(source)
    return load_sequences(
        data,
        seq_len=plan.seq_len,
        vocab_size=source.config.get_text_config(decoder=True).vocab_size,
        encode=None if tokenizer is None else _encoder(tokenizer),
        eos_id=None if tokenizer is None else tokenizer.eos_token_id,
        tokenizer=tokenizer,
        long_samples=options.long_samples,
    )


def open_planned_source(plan: Plan) -> ModelSource:
    """Find the model of a plan.

    Args:
        plan: The plan.

    Returns:
        The source.

    Raises:
        ModelError: There is no such model.
    """
    return open_source(
        plan.model.id,
        revision=plan.model.revision,
        trust_remote_code=plan.trust_remote_code,
    )


def _check_devices(plan: Plan) -> None:
    if plan.device_type != "cuda":
        return
    if not torch.cuda.is_available():
        msg = (
            "the plan is for CUDA cards and this machine has none that torch can "
            "use; run it where the cards are, or make a plan for this CPU from "
            "`planner profile MODEL --device cpu`"
        )
        raise RunError(msg)
    found = torch.cuda.device_count()
    if found < plan.num_processes and not _joins_other_machines():
        msg = f"the plan needs {plan.num_processes} cards, this machine has {found}"
        raise RunError(msg)


def _joins_other_machines() -> bool:
    return torch.distributed.is_torchelastic_launched()


def _encoder(tokenizer: Any) -> Any:
    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer(
            text, add_special_tokens=False, return_attention_mask=False, verbose=False
        )["input_ids"]
        return ids

    return encode
