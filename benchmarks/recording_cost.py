"""What it costs to note when every action begins and ends: with and without, in turn.

    python benchmarks/recording_cost.py --rounds 40

Two single-threaded gloo processes train a Llama of 8 blocks under ZB-V, which has the
most actions a step of all schedules. A round is one step with the stopwatch and one
without, in an order that changes from round to round. Printed are the paired ratio of
step times (median, quartiles, rounds) and, since that of a shared machine is wide, what
the calls of the stopwatch take by themselves as a share of the median step.
"""

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from planner.chain.source import quiet_transformers
from planner.measure.stopwatch import Stopwatch
from planner.model_profile import ModelInfo
from planner.plan import (
    OptimizerPlan,
    Plan,
    PlanPrediction,
    ProfileRef,
    SchedulePlan,
    SolverReport,
    StagePlan,
)
from planner.runtime.data import Sequences
from planner.runtime.job import Job
from planner.runtime.options import RunOptions
from planner.runtime.trainer import DeviceTrainer
from planner.schedule.actions import format_actions
from planner.schedule.named import schedule_actions

CPU = torch.device("cpu")
NUM_DEVICES = 2
NUM_MICROBATCHES = 8
SEQ_LEN = 128
COUNTS = (3, 2, 3, 2)


def main() -> None:
    """Run the processes and print what the first of them found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--hidden", type=int, default=256)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        job = make_job(Path(scratch), args.hidden)
        context = multiprocessing.get_context("spawn")
        started = [
            context.Process(target=measure, args=(job, rank, args.rounds))
            for rank in range(NUM_DEVICES)
        ]
        for process in started:
            process.start()
        for process in started:
            process.join(1200)
            process.kill()
        sys.exit(any(process.exitcode for process in started))


def make_job(scratch: Path, hidden: int) -> Job:
    """A model, its rows and a plan, all made up."""
    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=8,
        num_attention_heads=8,
        vocab_size=4096,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(scratch / "model")
    ids = torch.randint(0, 4096, (NUM_MICROBATCHES, SEQ_LEN))
    rows = {
        "input_ids": ids,
        "labels": ids.clone(),
        "attention_mask": torch.ones_like(ids),
    }
    save_file(rows, scratch / "rows.safetensors")
    actions = schedule_actions("zb-v", NUM_DEVICES, NUM_MICROBATCHES)
    return Job(
        plan=make_plan(scratch / "model", format_actions(actions)),
        options=RunOptions(output_dir=scratch / "run").as_record(),
        num_steps=1,
        pretrained=True,
        sequences_path=str(scratch / "rows.safetensors"),
        work_dir=str(scratch),
    )


def make_plan(model: Path, actions: tuple[tuple[str, ...], ...]) -> Plan:
    """Four stages in the order given; nothing is predicted."""
    names = ["embedding", *(f"model.layers.{i}" for i in range(8)), "head"]
    firsts = [sum(COUNTS[:index]) for index in range(len(COUNTS))]
    return Plan(
        model=ModelInfo(id=str(model)),
        profile=ProfileRef(path="", sha256=""),
        device_type="cpu",
        dtype="float32",
        seq_len=SEQ_LEN,
        global_batch_size=NUM_MICROBATCHES,
        stages=tuple(
            StagePlan(
                index=index,
                device="0",
                first_layer=first,
                last_layer=first + count - 1,
                layers=tuple(names[first : first + count]),
            )
            for index, (first, count) in enumerate(zip(firsts, COUNTS, strict=True))
        ),
        schedule=SchedulePlan(
            name="zb-v",
            num_microbatches=NUM_MICROBATCHES,
            microbatch_size=1,
            actions=actions,
        ),
        optimizer=OptimizerPlan(name="sgd", bytes_per_parameter=8),
        predicted=PlanPrediction(step_s=0.0, makespan_s=0.0),
        solver=SolverReport(
            status="feasible", bound_s=0.0, gap=0.0, candidates=0, solve_s=0.0
        ),
    )


def measure(job: Job, rank: int, num_rounds: int) -> None:
    """Take steps in turn; the first process prints."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{job.work_dir}/store",
        rank=rank,
        world_size=NUM_DEVICES,
    )
    with quiet_transformers():
        trainer = DeviceTrainer(job, CPU)
    sequences = job.sequences()
    assert isinstance(sequences, Sequences)
    batch = sequences.batch(torch.arange(NUM_MICROBATCHES), NUM_MICROBATCHES)
    watch: Any = trainer.engine.stopwatch

    def step(noting: bool) -> float:
        watch.run = (
            (lambda name, work: Stopwatch.run(watch, name, work))
            if noting
            else (lambda _, work: work())
        )
        dist.barrier()
        begin_s = time.perf_counter()
        trainer.gradients(batch, masked=False)
        if noting:
            watch.spans()
        trainer.optimizer.step(1e-4)
        dist.barrier()
        return time.perf_counter() - begin_s

    for noting in (True, False, True, False):
        step(noting)
    pairs = []
    for number in range(num_rounds):
        first = step(number % 2 == 0)
        second = step(number % 2 == 1)
        pairs.append((first, second) if number % 2 == 0 else (second, first))
    if rank == 0:
        report(pairs, job)
    dist.destroy_process_group()


def report(pairs: list[tuple[float, float]], job: Job) -> None:
    """Print both ways of looking at the cost."""
    ratios = [noted / plain for noted, plain in pairs]
    low, median, high = statistics.quantiles(ratios, n=4)
    plain_s = statistics.median(plain for _, plain in pairs)
    num_actions = len(job.plan.schedule.actions[0])
    print(f"torch {torch.__version__}, {NUM_DEVICES} processes on the CPU, ZB-V")
    print(
        f"{num_actions} actions a process and step, median step {plain_s * 1e3:.1f} ms"
    )
    print(
        f"with / without: {median:.4f} (quartiles {low:.4f} to {high:.4f}, "
        f"{len(pairs)} paired rounds)"
    )
    alone_s = time_alone(num_actions)
    print(
        f"the stopwatch alone: {alone_s * 1e6:.1f} us a step, "
        f"{alone_s / plain_s:.3%} of it"
    )


def time_alone(num_actions: int) -> float:
    """A step's notes around no work at all, spans included [s]."""
    watch = Stopwatch(CPU)
    taken = []
    for _ in range(50):
        begin_s = time.perf_counter()
        watch.begin_step()
        for number in range(num_actions):
            watch.run(f"0F{number}", lambda: None)
        watch.spans()
        taken.append(time.perf_counter() - begin_s)
    return statistics.median(taken)


if __name__ == "__main__":
    main()
