"""Two processes against what people use: the same work, in turn, in one run.

    python benchmarks/two_processes.py MODEL_FOLDER --rounds 10 --optimizer adamw

    one          one process, the unsplit model
    even 1f1b    the blocks shared out evenly under 1F1B (PyTorch by hand, DeepSpeed)
    even inter.  four even stages on two processes under interleaved 1F1B
    pick         what `planner solve` picks by itself

Each round runs all four in turn, `--steps` steps each, the first of which does not
count. Printed are the step times and, for each round, their ratios: of the pick to one
process, and of both even splits to the pick, with median, smallest and largest.
A difference smaller than the spread says nothing.
"""

import argparse
import os
import shutil
import statistics
import tempfile
from pathlib import Path

from on_this_cpu import plan_here, profile_here

from planner.model_profile import ModelProfile
from planner.plan import Plan
from planner.run_record import load_metrics
from planner.runtime import RunOptions, run_plan
from planner.solve import Wishes

NUM_PROCESSES = 2


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--seq-len", type=int, default=256)
    parser.add_argument("--global-batch-size", type=int, default=8)
    parser.add_argument("--optimizer", default="adamw", choices=["adamw", "sgd"])
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    profile = profile_here(args.model, args.seq_len, NUM_PROCESSES)
    with tempfile.TemporaryDirectory() as folder:
        plans = make_plans(args, profile, Path(folder))
        rounds: list[dict[str, float]] = []
        for number in range(args.rounds):
            steps_s = {
                name: step_s(plan, Path(folder) / f"{number}-{name}", args.steps)
                for name, plan in plans.items()
            }
            rounds.append(steps_s)
            told = "  ".join(f"{name} {took:.2f} s" for name, took in steps_s.items())
            print(f"round {number + 1}: {told}", flush=True)
    for above, below in (
        ("pick", "one"),
        ("even 1f1b", "pick"),
        ("even inter.", "pick"),
    ):
        ratios = [steps_s[above] / steps_s[below] for steps_s in rounds]
        print(
            f"{above} / {below}: median {statistics.median(ratios):.3f}, "
            f"{min(ratios):.3f} to {max(ratios):.3f} in {len(ratios)} rounds"
        )


def make_plans(
    args: argparse.Namespace, profile: ModelProfile, folder: Path
) -> dict[str, Plan]:
    """The four plans by name."""
    num_blocks = len(profile.layers) - 2

    def plan(num_processes: int, schedule: str, num_stages: int | None = None) -> Plan:
        wishes = Wishes(
            global_batch_size=args.global_batch_size,
            schedule=schedule,
            optimizer=args.optimizer,
            recompute="none",
            layers_per_stage=even_counts(num_blocks, num_stages)
            if num_stages
            else None,
        )
        return plan_here(profile, num_processes, wishes, folder)

    plans = {
        "one": plan(1, "1f1b"),
        "even 1f1b": plan(NUM_PROCESSES, "1f1b", NUM_PROCESSES),
        "even inter.": plan(NUM_PROCESSES, "interleaved-1f1b", 2 * NUM_PROCESSES),
        "pick": plan(NUM_PROCESSES, "auto"),
    }
    for name, made in plans.items():
        counts = "+".join(str(len(stage.layers)) for stage in made.stages)
        expected = f"{made.predicted.step_s:.2f} s predicted"
        print(f"{name}: {made.schedule.name}, layers {counts}, {expected}")
    return plans


def even_counts(num_blocks: int, num_stages: int) -> tuple[int, ...]:
    """Blocks shared out evenly, the embedding on the first and the head on the last."""
    counts = [
        (i + 1) * num_blocks // num_stages - i * num_blocks // num_stages
        for i in range(num_stages)
    ]
    counts[0] += 1
    counts[-1] += 1
    return tuple(counts)


def step_s(plan: Plan, run_dir: Path, num_steps: int) -> float:
    """Median step time of a run, without its first step."""
    run_plan(plan, RunOptions(output_dir=run_dir, steps=num_steps))
    metrics = load_metrics(run_dir)
    shutil.rmtree(run_dir)
    return statistics.median(entry.step_s for entry in metrics[1:])


if __name__ == "__main__":
    main()
