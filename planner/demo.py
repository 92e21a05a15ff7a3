"""The main job on a small model: profile, solve, run, report, offline on a CPU.

The model is a small mixture of experts in the manner of Llama, with random
weights, trained on the sources of Python's standard library. Four processes
play four cards of a memory that no one of them alone could train it in.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from planner import artifact
from planner.cluster import parse_cluster
from planner.errors import ArtifactError
from planner.measure import Lines, profile_model
from planner.model_profile import sha256_of
from planner.plan import Plan, ProfileRef
from planner.plan_text import describe_plan
from planner.report import write_report
from planner.run_record import RunRecord, load_metrics
from planner.runtime import RunOptions, run_plan
from planner.solve import Wishes, best_plan
from planner.units import format_bytes, format_count, format_seconds

_NUM_CARDS = 4
_CARD_MEMORY = "56MiB"
_SEQ_LEN = 128
_NUM_STEPS = 24

# As in config.json; bytes are the tokens, so the vocabulary is 256.
_CONFIG = {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "vocab_size": 256,
    "hidden_size": 192,
    "intermediate_size": 384,
    "num_hidden_layers": 8,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": None,
}


def run_demo(out_dir: Path, echo: Callable[[str], None]) -> None:
    """Profile, solve, run and report; everything lands in one folder.

    Args:
        out_dir: Made for the demo, and made anew by the next one.
        echo: Is told every line for the user.

    Raises:
        ArtifactError: `out_dir` holds something else than an earlier demo.
        PlannerError: One of the steps failed.
    """
    _make_folder(out_dir)
    model_dir = out_dir / "model"
    artifact.save(_CONFIG, model_dir / "config.json")
    plan = _plan(out_dir, model_dir, echo)
    echo(describe_plan(plan))
    echo("")
    options = RunOptions(
        output_dir=out_dir / "run",
        steps=_NUM_STEPS,
        lr=2e-3,
        lr_schedule="cosine",
        warmup_steps=4,
        init="random",
    )
    record = run_plan(plan, options)
    page = write_report(options.output_dir, out_dir / "report")
    echo("")
    for line in _summary(plan, record, options.output_dir, page):
        echo(line)


def _make_folder(out_dir: Path) -> None:
    """Start from an empty folder, but never delete what is not a demo's."""
    if out_dir.exists() and not _is_of_demo(out_dir):
        msg = f"{out_dir} holds something else; choose another folder with -o"
        raise ArtifactError(msg)
    shutil.rmtree(out_dir, ignore_errors=True)


def _is_of_demo(out_dir: Path) -> bool:
    """Whether a folder is empty or has the demo's model and nothing strange."""
    if not out_dir.is_dir():
        return False
    found = set(os.listdir(out_dir))
    if not found:
        return True
    config = out_dir / "model" / "config.json"
    known = {"model", "profile.json", "plan.json", "run", "report"}
    return found <= known and (
        config.is_file() and config.read_text() == artifact.to_json(_CONFIG)
    )


def _plan(out_dir: Path, model_dir: Path, echo: Callable[[str], None]) -> Plan:
    profile = profile_model(
        str(model_dir),
        device="cpu",
        dtype="float32",
        seq_len=_SEQ_LEN,
        microbatch_sizes=(2, 1),
        attention="auto",
        revision=None,
        trust_remote_code=False,
        progress=Lines(say=echo),
    )
    path = out_dir / "profile.json"
    artifact.save(profile, path)
    cluster = parse_cluster(
        str(_NUM_CARDS),
        profile,
        memory=_CARD_MEMORY,
        # Processes that share a core take turns on it.
        speed=str(min(1.0, num_cores() / _NUM_CARDS)),
    )
    ref = ProfileRef(path=str(path), sha256=sha256_of(path))
    wishes = Wishes(global_batch_size=16)
    plan = best_plan(profile, cluster, wishes, profile_ref=ref)
    artifact.save(plan, out_dir / "plan.json")
    return plan


def num_cores() -> int:
    """Cores that this process may use.

    Returns:
        At least 1.
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def _summary(
    plan: Plan, record: RunRecord, run_dir: Path, page: Path
) -> tuple[str, ...]:
    """Five lines that say what happened and what to do next."""
    assert record.measured is not None
    card = plan.stages[0].predicted.capacity_bytes
    states = plan.model.num_parameters * plan.optimizer.bytes_per_parameter
    fullest = max(device.peak_bytes for device in record.measured.devices)
    metrics = load_metrics(run_dir)
    losses = f"{metrics[0].loss:.2f} to {metrics[-1].loss:.2f}"
    processes = f"{plan.num_devices} processes on {num_cores()} cores"
    return (
        f"Fits      {format_count(plan.model.num_parameters)} parameters need "
        f"{format_bytes(states)} before the first activation; trained on "
        f"{plan.num_devices} cards of {format_bytes(card)}, the fullest reached "
        f"{format_bytes(fullest)}.",
        f"Speed     {format_seconds(plan.predicted.step_s)} a step predicted, "
        f"{format_seconds(record.measured.step_s)} measured ({processes}).",
        f"Learned   loss {losses} in {len(metrics)} steps on Python's own sources; "
        f"the model is in {run_dir / 'model'}.",
        f"Look      {page}",
        "Next      planner profile YOUR_MODEL && planner solve --gpus 4 && "
        "planner run plan.json",
    )
