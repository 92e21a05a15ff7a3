"""One process of a run: it holds one stage and trains it.

Started by `launch` with the job's file as its argument, or by somebody else, see
`joining`.
"""

import os
import signal
import sys
import time
import traceback
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

from planner.chain.layers import Chain, find_chain
from planner.chain.source import DTYPES, quiet_transformers
from planner.chain.stages import StageRecipe, build_stage
from planner.errors import RunError
from planner.plan import Plan
from planner.run_record import MeasuredStage, StepMetrics
from planner.runtime.data import Batch, Sequences, batches
from planner.runtime.engine import Engine
from planner.runtime.failures import Failure, save_failure
from planner.runtime.gradients import TiedGradients, find_ties
from planner.runtime.job import Job, load_job, open_planned_source
from planner.runtime.learning_rate import learning_rates
from planner.runtime.measurements import StageMeasurements
from planner.runtime.own_rows import OwnBatch, OwnRows
from planner.runtime.recorder import Recorder
from planner.runtime.saving import save_checkpoint, save_model
from planner.stage_optimizer import StageOptimizer, clip, squared_norm


class StageTrainer:
    """One stage of a job, with everything that a step needs.

    Args:
        job: The run.
        rank: This process's stage.
        device: Where it computes.
    """

    def __init__(self, job: Job, rank: int, device: torch.device):
        plan = job.plan
        self.job, self.plan, self.rank, self.device = job, plan, rank, device
        self.options = job.run_options()
        self.source = open_planned_source(plan)
        shape = (plan.schedule.microbatch_size, plan.seq_len)
        chain = find_chain(self.source, attention=plan.attention, shape=shape)
        planned = plan.stages[rank]
        recipe = StageRecipe(
            first=planned.first_layer,
            last=planned.last_layer,
            dtype=plan.dtype,
            attention=plan.attention,
            recompute=planned.recompute,
        )
        seed = None if job.pretrained else self.options.seed
        torch.manual_seed(self.options.seed + rank)
        self.module = build_stage(self.source, chain, recipe, device=device, seed=seed)
        self.parameters = self.module.owned_parameters()
        self.tied = TiedGradients(find_ties(plan, chain), self.parameters, rank)
        self.optimizer = StageOptimizer(
            plan.optimizer.name,
            self.parameters.values(),
            weight_decay=self.options.weight_decay,
        )
        self.engine = Engine(
            self.module,
            index=rank,
            num_stages=plan.num_stages,
            schedule=plan.schedule,
            received=_crossing(chain, planned.first_layer - 1, plan),
            sent=_crossing(chain, planned.last_layer, plan),
            device=device,
        )
        self.measurements = StageMeasurements(device)

    def step(
        self, number: int, batch: Batch | OwnBatch, lr: float, masked: bool
    ) -> StepMetrics:
        """Run one step on this stage; all stages call it together.

        Args:
            number: Of the step, from 1.
            batch: The step's rows, shape (global_batch_size, ...).
            lr: Learning rate of the step.
            masked: Whether the model is given the attention mask.

        Returns:
            The step's metrics, the same on every stage.

        Raises:
            RunError: The loss or the gradient norm is not finite.
        """
        inputs = {
            key: _ready(value, self.plan).to(self.device)
            for key, value in batch.inputs(masked).items()
        }
        begin_s = time.perf_counter()
        loss = self.engine.step(inputs, max(1, batch.num_target_tokens))
        self.tied.exchange()
        totals = torch.tensor(
            [loss, squared_norm(self.tied.owned)], dtype=torch.float64
        ).to(self.device)
        dist.all_reduce(totals)
        loss, norm = float(totals[0]), float(totals[1]) ** 0.5
        if not torch.isfinite(totals).all():
            msg = (
                f"the loss of step {number} is {loss} and its gradient norm {norm}; "
                "use a lower --lr, or look at the data of that step"
            )
            raise RunError(msg)
        # Only now: until here this stage waited for the others.
        together_s = time.perf_counter()
        clip(self.parameters.values(), norm, self.options.max_grad_norm)
        self.optimizer.step(lr)
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        end_s = time.perf_counter()
        self.measurements.note_step(end_s - together_s, self.engine.stopwatch)
        return StepMetrics(
            step=number,
            loss=loss,
            grad_norm=norm,
            lr=lr,
            num_tokens=batch.num_target_tokens,
            step_s=end_s - begin_s,
            tokens_per_s=batch.num_tokens / (end_s - begin_s),
        )

    def train(self, sequences: Sequences | OwnRows) -> None:
        """Run all steps, then save the model, a checkpoint and the record.

        Args:
            sequences: The job's data.
        """
        recorder = Recorder(self.job) if self.rank == 0 else None
        rates = learning_rates(self.options, self.job.num_steps)
        timed: list[float] = []
        steps = batches(
            sequences,
            global_batch_size=self.plan.global_batch_size,
            num_steps=self.job.num_steps,
            shuffle=self.options.shuffle,
            seed=self.options.seed,
        )
        for number, (batch, lr) in enumerate(zip(steps, rates, strict=True), start=1):
            watched = number == min(2, self.job.num_steps)
            with self.measurements.watch_peak(watched, sequences.tensors().values()):
                metrics = self.step(number, batch, lr, sequences.has_padding)
            if self.job.num_steps <= 2 or number > 2:
                timed.append(metrics.step_s)
            if recorder is not None:
                recorder.note(metrics)
        self._save()
        stages: list[MeasuredStage] = [MeasuredStage()] * dist.get_world_size()
        dist.all_gather_object(stages, self.measurements.summary())
        if recorder is not None:
            recorder.finish(tuple(stages), timed)

    def _save(self) -> None:
        self.tied.check_copies()
        folder = self.options.output_dir
        owned = {id(p) for p in self.tied.owned}
        states = self.optimizer.states(self.parameters)
        tensors = {}
        for name, parameter in self.parameters.items():
            if id(parameter) in owned:
                tensors[name] = parameter.detach()
                for key, state in states[name].items():
                    tensors[f"optimizer.{name}.{key}"] = state
        save_checkpoint(folder / "checkpoints", self.job.num_steps, tensors)
        save_model(folder / "model", self.plan, self.source, self.module, owned)


def _ready(value: torch.Tensor, plan: Plan) -> torch.Tensor:
    """Fractions in the dtype of the plan."""
    return value.to(DTYPES[plan.dtype]) if value.is_floating_point() else value


def _crossing(chain: Chain, last_layer: int, plan: Plan) -> list[torch.Tensor]:
    """Meta tensors like what crosses the cut after a layer."""
    return [
        torch.empty(
            x.shape, dtype=x.dtype, device="meta", requires_grad=x.requires_grad
        )
        for x in chain.crossing(last_layer, dtype=DTYPES[plan.dtype])
    ]


def train_stage(
    job: Job, sequences: Sequences | OwnRows, rank: int, device: torch.device
) -> None:
    """Train one stage of a job from start to end.

    The process group must exist; every stage calls this together. When it returns,
    the record of the run is written.

    Args:
        job: The run.
        sequences: The job's data.
        rank: This process's stage.
        device: Where it computes.
    """
    StageTrainer(job, rank, device).train(sequences)
    dist.barrier()


def main(job_path: Path) -> None:
    """Join the other processes, train one stage, and leave a failure in the job.

    Args:
        job_path: The file of the job.
    """
    # The one who started this process says that it was interrupted.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    job = load_job(job_path)
    rank = int(os.environ["RANK"])
    try:
        _train_in_group(job, job.sequences(), rank, None)
    except Exception as error:
        save_failure(Failure.of(error, job.plan.stages[rank]), Path(job.work_dir))
        traceback.print_exc(file=(Path(job.work_dir) / f"rank-{rank}.log").open("w"))
        # Other threads may hang in communication with processes that are gone.
        os._exit(1)


def join(job: Job, sequences: Sequences | OwnRows, store: Store) -> None:
    """Train one stage in a process that nobody of ours watches.

    A failure is said on stderr, unless it only tells that another process failed,
    and ends this process.

    Args:
        job: The run.
        sequences: The job's data.
        store: Where the processes meet.
    """
    rank = int(os.environ["RANK"])
    try:
        _train_in_group(job, sequences, rank, store)
    except Exception as error:
        failure = Failure.of(error, job.plan.stages[rank])
        if not failure.is_echo:
            sys.stderr.write(f"error: {failure.sentence}\n")
            sys.stderr.flush()
        os._exit(1)


def _train_in_group(
    job: Job, sequences: Sequences | OwnRows, rank: int, store: Store | None
) -> None:
    device = _open_device(job.plan)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=job.plan.num_stages
    )
    with quiet_transformers():
        train_stage(job, sequences, rank, device)
    dist.destroy_process_group()


def _open_device(plan: Plan) -> torch.device:
    if plan.device_type == "cpu":
        torch.set_num_threads(1)
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


if __name__ == "__main__":
    main(Path(sys.argv[1]))
