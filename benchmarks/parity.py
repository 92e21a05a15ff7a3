"""Split training against one process: the largest relative difference.

    python benchmarks/parity.py MODEL_FOLDER --stages 1,2,3,4 --steps 10

For every number of stages the model is profiled, planned and trained on
Python's own sources; the same data then trains the unsplit model in this
process. Printed are the largest relative differences of loss and gradient norm
over all steps, and of the weights at the end (by tensor, in norm).
"""

import argparse
import tempfile
from pathlib import Path

import torch
from on_this_cpu import plan_here, profile_here
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from planner.model_profile import ModelProfile
from planner.run_record import load_metrics
from planner.runtime import RunOptions, run_plan
from planner.runtime.data import batches, load_sequences
from planner.solve import Wishes

LR = 1e-4
MAX_NORM = 1.0


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--stages", default="1,2,3,4")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seq-len", type=int, default=256)
    parser.add_argument("--global-batch-size", type=int, default=8)
    args = parser.parse_args()
    profile = profile_here(args.model, args.seq_len)
    expected = train_unsplit(args)
    print(f"{args.model}, {args.steps} steps of {args.global_batch_size} x")
    print(f"{args.seq_len} tokens, float32, AdamW, lr {LR}, clipped at {MAX_NORM}")
    print("stages  layers         loss     norm  weights")
    for num_stages in map(int, args.stages.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            counts, found = train_split(args, profile, num_stages, Path(folder))
        worst = [
            max(abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True))
            for ours, theirs in zip(found[:2], expected[:2], strict=True)
        ]
        weights = max(
            float((found[2][k] - v).norm() / v.norm()) for k, v in expected[2].items()
        )
        print(
            f"{num_stages:6}  {'+'.join(map(str, counts)):11}"
            f"  {worst[0]:7.1e}  {worst[1]:7.1e}  {weights:7.1e}",
            flush=True,
        )


def train_split(
    args: argparse.Namespace, profile: ModelProfile, num_stages: int, folder: Path
) -> tuple[list[int], tuple[list[float], list[float], dict[str, torch.Tensor]]]:
    """Plan and run; layers per stage, losses, norms and final weights."""
    wishes = Wishes(global_batch_size=args.global_batch_size)
    plan = plan_here(profile, num_stages, wishes, folder)
    options = RunOptions(
        output_dir=folder / "run", steps=args.steps, lr=LR, max_grad_norm=MAX_NORM
    )
    run_plan(plan, options)
    metrics = load_metrics(options.output_dir)
    state = {
        key: value
        for file in (options.output_dir / "model").glob("*.safetensors")
        for key, value in load_file(file).items()
    }
    counts = [len(stage.layers) for stage in plan.stages]
    return counts, ([m.loss for m in metrics], [m.grad_norm for m in metrics], state)


def train_unsplit(
    args: argparse.Namespace,
) -> tuple[list[float], list[float], dict[str, torch.Tensor]]:
    """Plain training of the unsplit model, microbatch after microbatch."""
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
    model.train()
    sequences = load_sequences(
        "builtin",
        seq_len=args.seq_len,
        vocab_size=model.config.vocab_size,
        encode=lambda text: tokenizer(text, add_special_tokens=False)["input_ids"],
        eos_id=tokenizer.eos_token_id,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)
    losses, norms = [], []
    for batch in batches(
        sequences,
        global_batch_size=args.global_batch_size,
        num_steps=args.steps,
        shuffle=True,
        seed=0,
    ):
        total = 0.0
        for ids, labels in zip(batch.input_ids, batch.labels, strict=True):
            logits = model(input_ids=ids[None], use_cache=False).logits[0, :-1]
            summed = torch.nn.functional.cross_entropy(
                logits, labels[1:], ignore_index=-100, reduction="sum"
            )
            loss = summed / batch.num_target_tokens
            loss.backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
        norms.append(norm.item())
    names = dict(model.named_parameters())
    return losses, norms, {k: v.detach().clone() for k, v in names.items()}


if __name__ == "__main__":
    main()
