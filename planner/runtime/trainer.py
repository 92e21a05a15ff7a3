"""Training on one device: its stages, from the first step to the saved model."""

import math
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path

import torch
import torch.distributed as dist

from planner.chain.layers import Chain, find_chain
from planner.chain.source import DTYPES
from planner.chain.stage_module import StageModule
from planner.chain.stages import StageRecipe, build_stage, share_parameters
from planner.errors import RunError
from planner.plan import Plan, StagePlan
from planner.run_record import StepMetrics
from planner.runtime.checkpoint import (
    DeviceState,
    restore_training,
    restore_weights,
    save_checkpoint,
)
from planner.runtime.checkpoint_folder import Progress
from planner.runtime.data import (
    Batch,
    Sequences,
    batches,
    batches_once,
    steps_per_epoch,
)
from planner.runtime.engine import Engine, EngineStage
from planner.runtime.failures import blamed_on
from planner.runtime.gradients import (
    TiedGradients,
    find_ties,
    lay_out_like_parameters,
)
from planner.runtime.job import Job, open_planned_source
from planner.runtime.learning_rate import learning_rates
from planner.runtime.measurements import DeviceFigures, DeviceMeasurements
from planner.runtime.model_card import model_card
from planner.runtime.own_rows import OwnBatch, OwnRows
from planner.runtime.place import place_of
from planner.runtime.random_states import draw_anew
from planner.runtime.recorder import Recorder
from planner.runtime.saving import save_model
from planner.runtime.stopping import StopWish
from planner.stage_optimizer import StageOptimizer, clip, squared_norm
from planner.versions import installed_versions


class DeviceTrainer:
    """The stages of one device of a job, with everything that a step needs.

    Args:
        job: The run.
        device: Where it computes.
        wish: Whether somebody asked this process to stop; None if nobody can.
        evaluation: What the model is evaluated on, if anything.
    """

    def __init__(
        self,
        job: Job,
        device: torch.device,
        wish: StopWish | None = None,
        evaluation: Sequences | None = None,
    ):
        plan = job.plan
        self.wish, self.is_stopping = wish or StopWish(), False
        self.job, self.plan, self.device = job, plan, device
        self.evaluation = evaluation
        self.rank, self.place = dist.get_rank(), place_of(plan, device.type)
        self.options = job.run_options()
        self.source = open_planned_source(plan)
        shape = (plan.schedule.microbatch_size, plan.seq_len)
        chain = find_chain(self.source, attention=plan.attention, shape=shape)
        own = plan.stages_of_device(self.place.device)
        draw_anew(self.options.seed + self.rank)
        self.modules = [self._build(chain, stage) for stage in own]
        self.parameters = share_parameters(self.modules)
        self.tied = TiedGradients(
            find_ties(plan, chain), self.parameters, self.place, plan.num_devices
        )
        if job.checkpoint is not None:
            restore_weights(Path(job.checkpoint), self.modules, self.parameters)
        self.optimizer = StageOptimizer(
            plan.optimizer.name,
            self.parameters.values(),
            weight_decay=self.options.weight_decay,
            names=self.parameters,
        )
        self.state = DeviceState(
            rank=self.rank,
            device=device,
            modules=self.modules,
            parameters=self.parameters,
            owned={id(p) for p in self.tied.owned} if self.place.saves else set(),
            saves=self.place.saves,
            optimizer=self.optimizer,
        )
        if job.checkpoint is not None:
            restore_training(Path(job.checkpoint), self.state, plan)
        self.engine = Engine(
            [
                EngineStage(
                    index=stage.index,
                    module=module,
                    received=_crossing(chain, stage.first_layer - 1, plan),
                    sent=_crossing(chain, stage.last_layer, plan),
                )
                for stage, module in zip(own, self.modules, strict=True)
            ],
            num_stages=plan.num_stages,
            schedule=plan.schedule,
            device=device,
            group=self.place.pipeline,
        )
        self.measurements = DeviceMeasurements(device, own)

    def _build(self, chain: Chain, stage: StagePlan) -> StageModule:
        recipe = StageRecipe(
            first=stage.first_layer,
            last=stage.last_layer,
            dtype=self.plan.dtype,
            attention=self.plan.attention,
            recompute=stage.recompute,
        )
        seed = None if self.job.pretrained else self.options.seed
        with blamed_on(stage.index):
            return build_stage(
                self.source,
                chain,
                recipe,
                device=self.device,
                seed=seed,
                empty=self.job.checkpoint is not None,
            )

    def gradients(self, batch: Batch | OwnBatch, masked: bool) -> tuple[float, float]:
        """Leave the gradients of a step in the parameters, summed over all holders.

        All devices call it together, and agree meanwhile on whether to stop after
        this step.

        Args:
            batch: The step's rows, shape (global_batch_size, ...).
            masked: Whether the model is given the attention mask.

        Returns:
            The loss and the norm of all gradients, the same on every device.
        """
        asked = self.wish.is_there
        inputs = self._inputs(batch, masked)
        loss = self.engine.step(inputs, max(1, batch.num_target_tokens))
        lay_out_like_parameters(self.parameters.values())
        self.place.sum_gradients(self.parameters.values())
        self.tied.exchange()
        squared = squared_norm(self.tied.owned) if self.place.saves else 0.0
        totals = torch.tensor([loss, squared, asked], dtype=torch.float64).to(
            self.device
        )
        dist.all_reduce(totals)
        self.is_stopping = bool(totals[2])
        return float(totals[0]), float(totals[1]) ** 0.5

    def _inputs(self, batch: Batch | OwnBatch, masked: bool) -> dict[str, torch.Tensor]:
        """What this copy computes of a batch, on its device."""
        return {
            key: _ready(self.place.share(value), self.plan).to(self.device)
            for key, value in batch.inputs(masked).items()
        }

    def evaluate(self, sequences: Sequences) -> float:
        """The mean loss of all target tokens; all devices call it together.

        Args:
            sequences: Any number of rows, at least one target token in all.

        Returns:
            The loss, the same on every device.
        """
        loss, num_tokens = 0.0, 0
        for batch in batches_once(sequences, self.plan.global_batch_size):
            inputs = self._inputs(batch, sequences.has_padding)
            loss += self.engine.evaluate(inputs)
            num_tokens += batch.num_target_tokens
        total = torch.tensor(loss, dtype=torch.float64).to(self.device)
        dist.all_reduce(total)
        return float(total) / num_tokens

    def step(
        self, number: int, batch: Batch | OwnBatch, lr: float, masked: bool
    ) -> StepMetrics:
        """Run one step on this device; all devices call it together.

        Args:
            number: Of the step, from 1.
            batch: The step's rows, shape (global_batch_size, ...).
            lr: Learning rate of the step.
            masked: Whether the model is given the attention mask.

        Returns:
            The step's metrics, the same on every device.

        Raises:
            RunError: The loss or the gradient norm is not finite.
        """
        begin_s = time.perf_counter()
        loss, norm = self.gradients(batch, masked)
        if not (math.isfinite(loss) and math.isfinite(norm)):
            msg = (
                f"the loss of step {number} is {loss} and its gradient norm {norm}; "
                "use a lower --lr, or look at the data of that step"
            )
            raise RunError(msg)
        # Only now: until here this device waited for the others.
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
        """Run all steps that are left, save, and write the record.

        Args:
            sequences: The job's data.
        """
        job = self.job
        recorder = Recorder(job) if self.rank == 0 else None
        rates = islice(learning_rates(self.options, job.num_steps), job.num_done, None)
        timed: list[float] = []
        steps = batches(
            sequences,
            global_batch_size=self.plan.global_batch_size,
            num_steps=job.num_steps,
            shuffle=self.options.shuffle,
            seed=self.options.seed,
            num_done=job.num_done,
        )
        num_here = job.num_steps - job.num_done
        for place, (batch, lr) in enumerate(zip(steps, rates, strict=True), start=1):
            number = job.num_done + place
            watched = place == min(2, num_here)
            with self.measurements.watch_peak(watched, sequences.tensors().values()):
                metrics = self.step(number, batch, lr, sequences.has_padding)
            if num_here <= 2 or place > 2:
                timed.append(metrics.step_s)
            if self.evaluation is not None and self._is_evaluated(number):
                metrics = self._evaluated(metrics, self.evaluation)
            if recorder is not None:
                recorder.note(metrics)
            ends = self.is_stopping or number == job.num_steps
            if ends or self._is_due(number):
                self._save_checkpoint(number, len(sequences))
            if self.is_stopping and number < job.num_steps:
                if recorder is not None:
                    recorder.stop()
                return
        if self.place.saves:
            self._save_model()
            figures = self._figures()
            if recorder is not None:
                recorder.finish(figures, timed)

    def _figures(self) -> list[DeviceFigures]:
        """What all devices of this copy measured."""
        own = self.measurements.summary()
        figures = [own] * self.plan.num_devices
        dist.all_gather_object(figures, own, group=self.place.pipeline)
        return figures

    def _save_model(self) -> None:
        card = model_card(self.plan, self.options.as_record(), self.job.num_steps)
        folder = self.options.output_dir / "model"
        owned = self.state.owned
        save_model(
            folder,
            self.plan,
            self.source,
            self.modules,
            owned,
            card,
            self.place.pipeline,
        )

    def _evaluated(self, metrics: StepMetrics, sequences: Sequences) -> StepMetrics:
        """The metrics of a step with the loss of an evaluation."""
        eval_loss = self.evaluate(sequences)
        if not math.isfinite(eval_loss):
            msg = (
                f"the loss of the evaluation after step {metrics.step} is {eval_loss}; "
                "use a lower --lr, or look at the data of --eval-data"
            )
            raise RunError(msg)
        return replace(metrics, eval_loss=eval_loss)

    def _is_evaluated(self, number: int) -> bool:
        every = self.options.eval_every
        is_due = every is not None and number % every == 0
        return is_due or number == self.job.num_steps

    def _is_due(self, number: int) -> bool:
        every = self.options.save_every
        return every is not None and number % every == 0

    def _save_checkpoint(self, number: int, num_sequences: int) -> None:
        self.tied.check_copies()
        per_epoch = steps_per_epoch(num_sequences, self.plan.global_batch_size)
        epoch, into = divmod(number, per_epoch)
        progress = Progress(
            step=number,
            num_steps=self.job.num_steps,
            epoch=epoch,
            sequence=into * self.plan.global_batch_size,
            num_sequences=num_sequences,
            options=self.options.as_record(),
            versions=installed_versions(),
        )
        save_checkpoint(
            self.options.output_dir, self.state, self.plan, progress, self.options.keep
        )


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


def train_device(
    job: Job,
    sequences: Sequences | OwnRows,
    device: torch.device,
    wish: StopWish | None = None,
    evaluation: Sequences | None = None,
) -> None:
    """Train the stages of one device of a job from start to end.

    The process group must exist; every device calls this together. When it returns,
    the record of the run is written.

    Args:
        job: The run.
        sequences: The job's data.
        device: Where it computes.
        wish: Whether somebody asked this process to stop.
        evaluation: What the model is evaluated on, if anything.
    """
    DeviceTrainer(job, device, wish, evaluation).train(sequences)
    dist.barrier()
