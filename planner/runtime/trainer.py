"""Training on one device: its stages, from the first step to the saved model."""

import math
import time

import torch
import torch.distributed as dist

from planner.chain.layers import Chain, find_chain
from planner.chain.source import DTYPES
from planner.chain.stage_module import StageModule
from planner.chain.stages import StageRecipe, build_stage, share_parameters
from planner.errors import RunError
from planner.plan import Plan, StagePlan
from planner.run_record import StepMetrics
from planner.runtime.data import Batch, Sequences, batches
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
from planner.runtime.own_rows import OwnBatch, OwnRows
from planner.runtime.recorder import Recorder
from planner.runtime.saving import save_checkpoint, save_model
from planner.stage_optimizer import StageOptimizer, clip, squared_norm


class DeviceTrainer:
    """The stages of one device of a job, with everything that a step needs.

    Args:
        job: The run.
        rank: This process's device, a row of the plan's schedule.
        device: Where it computes.
    """

    def __init__(self, job: Job, rank: int, device: torch.device):
        plan = job.plan
        self.job, self.plan, self.rank, self.device = job, plan, rank, device
        self.options = job.run_options()
        self.source = open_planned_source(plan)
        shape = (plan.schedule.microbatch_size, plan.seq_len)
        chain = find_chain(self.source, attention=plan.attention, shape=shape)
        own = plan.stages_of_device(rank)
        torch.manual_seed(self.options.seed + rank)
        self.modules = [self._build(chain, stage) for stage in own]
        self.parameters = share_parameters(self.modules)
        self.tied = TiedGradients(find_ties(plan, chain), self.parameters, rank)
        self.optimizer = StageOptimizer(
            plan.optimizer.name,
            self.parameters.values(),
            weight_decay=self.options.weight_decay,
            names=self.parameters,
        )
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
                self.source, chain, recipe, device=self.device, seed=seed
            )

    def gradients(self, batch: Batch | OwnBatch, masked: bool) -> tuple[float, float]:
        """Leave the gradients of a step in the parameters, those tied summed.

        All devices call it together.

        Args:
            batch: The step's rows, shape (global_batch_size, ...).
            masked: Whether the model is given the attention mask.

        Returns:
            The loss and the norm of all gradients, the same on every device.
        """
        inputs = {
            key: _ready(value, self.plan).to(self.device)
            for key, value in batch.inputs(masked).items()
        }
        loss = self.engine.step(inputs, max(1, batch.num_target_tokens))
        lay_out_like_parameters(self.parameters.values())
        self.tied.exchange()
        totals = torch.tensor(
            [loss, squared_norm(self.tied.owned)], dtype=torch.float64
        ).to(self.device)
        dist.all_reduce(totals)
        return float(totals[0]), float(totals[1]) ** 0.5

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
        own = self.measurements.summary()
        figures: list[DeviceFigures] = [own] * dist.get_world_size()
        dist.all_gather_object(figures, own)
        if recorder is not None:
            recorder.finish(figures, timed)

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
        save_model(folder / "model", self.plan, self.source, self.modules, owned)


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
    job: Job, sequences: Sequences | OwnRows, rank: int, device: torch.device
) -> None:
    """Train the stages of one device of a job from start to end.

    The process group must exist; every device calls this together. When it returns,
    the record of the run is written.

    Args:
        job: The run.
        sequences: The job's data.
        rank: This process's device, a row of the plan's schedule.
        device: Where it computes.
    """
    DeviceTrainer(job, rank, device).train(sequences)
    dist.barrier()
