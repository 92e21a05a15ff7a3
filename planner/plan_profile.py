"""Does the profile that a plan was made from still say the same?

A plan carries all that a run needs, so a profile that is gone is no problem. One
that was made again with other settings is: the user believes that the plan
follows it.
"""

from pathlib import Path

from planner.errors import ArtifactError
from planner.model_profile import ModelProfile, load_profile, sha256_of
from planner.plan import Plan


def check_profile(plan: Plan) -> str | None:
    """Compare a plan with the file it was made from, if that is still there.

    Args:
        plan: Its profile's path is relative to the current folder, or absolute.

    Returns:
        A sentence to show when only the costs have changed, else None.

    Raises:
        ArtifactError: The profile now has other settings; names each difference.
    """
    path = Path(plan.profile.path)
    if not path.is_file() or sha256_of(path) == plan.profile.sha256:
        return None
    if found := differences(plan, load_profile(path)):
        msg = (
            f"the profile {path} has other settings than when the plan was made: "
            f"{'; '.join(found)}; solve again"
        )
        raise ArtifactError(msg)
    return (
        f"the costs in {path} have changed since the plan was made; "
        "the run follows the plan, solve again to use them"
    )


def differences(plan: Plan, profile: ModelProfile) -> list[str]:
    """Compare the settings of a plan with those of a profile.

    Args:
        plan: Any.
        profile: Any.

    Returns:
        Such as `dtype is float32, the plan has bfloat16`; costs are not compared.
    """
    pairs = {
        "model": (plan.model.id, profile.model.id),
        "revision": (plan.model.revision, profile.model.revision),
        "dtype": (plan.dtype, profile.dtype),
        "attention": (plan.attention, profile.attention),
        "seq_len": (plan.seq_len, profile.seq_len),
        "number of layers": (len(plan.layer_names), len(profile.layers)),
    }
    found = [
        f"{name} is {now}, the plan has {then}"
        for name, (then, now) in pairs.items()
        if now != then
    ]
    size = plan.schedule.microbatch_size
    if size not in profile.microbatch_sizes:
        sizes = ", ".join(map(str, profile.microbatch_sizes))
        found.append(f"microbatch_size is {sizes}, the plan has {size}")
    return found
