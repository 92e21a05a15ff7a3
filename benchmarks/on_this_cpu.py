"""What the scripts that train on this CPU have in common: a profile and a plan."""

from dataclasses import replace
from pathlib import Path

from planner import artifact
from planner.cluster import parse_cluster
from planner.measure import Lines, measure_links, profile_model
from planner.model_profile import ModelProfile, sha256_of
from planner.plan import Plan, ProfileRef
from planner.solve import Wishes, best_plan


def profile_here(model: str, seq_len: int, num_processes: int = 1) -> ModelProfile:
    """Measure a model on this CPU, in fp32, one sequence a microbatch, and the links.

    Args:
        model: A folder.
        seq_len: Tokens of one sequence.
        num_processes: That compute at once while its layers are timed.

    Returns:
        Its profile.
    """
    profile = profile_model(
        model,
        device="cpu",
        dtype="float32",
        seq_len=seq_len,
        microbatch_sizes=(1,),
        attention="auto",
        revision=None,
        trust_remote_code=False,
        progress=Lines(say=lambda _: None),
        num_processes=num_processes,
    )
    if num_processes == 1:
        return profile
    return replace(profile, cluster=measure_links("cpu", num_processes=num_processes))


def plan_here(
    profile: ModelProfile, num_processes: int, wishes: Wishes, folder: Path
) -> Plan:
    """Plan some processes on this CPU.

    Args:
        profile: Of the model.
        num_processes: One a device.
        wishes: What is fixed.
        folder: Where the profile is written.

    Returns:
        The plan.
    """
    path = folder / "profile.json"
    artifact.save(profile, path)
    return best_plan(
        profile,
        parse_cluster(str(num_processes), profile),
        wishes,
        profile_ref=ProfileRef(path=str(path), sha256=sha256_of(path)),
    )
