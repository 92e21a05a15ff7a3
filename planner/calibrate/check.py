"""Which runs a profile can be calibrated with: those of its own plans, run long enough.

The factors are of measured to predicted times, so the prediction must be that of
this very profile, and on the kind of device that it speaks of.
"""

from pathlib import Path

from planner.cards import card_called
from planner.errors import ArtifactError
from planner.model_profile import ModelProfile
from planner.plan import Plan
from planner.plan_check import check_layers, check_schedule
from planner.plan_profile import differences
from planner.run_record import Measured, RunRecord

# Of fewer steps none is timed that is neither the first nor watched for its peak.
MIN_STEPS = 3


def check_run(
    record: RunRecord,
    num_steps: int,
    profile: ModelProfile,
    *,
    run_dir: Path,
    path: Path,
    sha256: str,
) -> Measured:
    """Refuse a run that says nothing about a profile.

    Args:
        record: Of the run.
        num_steps: That it made.
        profile: To be calibrated.
        run_dir: Of the run, for the errors.
        path: Of the profile, for the errors.
        sha256: Of the profile's file.

    Returns:
        What the run measured.

    Raises:
        ArtifactError: It followed a plan of another profile, on other devices, did
            not finish, was too short, or its record is not that of its plan.
    """
    _check_profile(record.plan, profile, run_dir, path, sha256)
    _check_devices(record.plan, profile, run_dir)
    measured = record.measured
    if record.status != "finished" or measured is None:
        msg = (
            f"{run_dir} ended after {_steps(num_steps)}, before it wrote what it "
            "measured; train to the end, for example planner run PLAN --steps 10"
        )
        raise ArtifactError(msg)
    if num_steps < MIN_STEPS:
        msg = (
            f"{run_dir} made {_steps(num_steps)}, of which none is timed undisturbed; "
            f"train at least {MIN_STEPS}, for example planner run PLAN --steps 10"
        )
        raise ArtifactError(msg)
    _check_record(record.plan, measured, profile, run_dir)
    return measured


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _check_profile(
    plan: Plan, profile: ModelProfile, run_dir: Path, path: Path, sha256: str
) -> None:
    if plan.profile.sha256 == sha256:
        return
    if others := differences(plan, profile):
        msg = (
            f"{run_dir} followed a plan of another profile than {path}: "
            f"{'; '.join(others)}; calibrate {plan.profile.path or 'its own'}"
        )
        raise ArtifactError(msg)
    if Path(plan.profile.path) == path:
        msg = (
            f"{path} has changed since the plan of {run_dir} was made from it, so its "
            "predictions are not known any more; solve and run again"
        )
    else:
        msg = (
            f"{run_dir} followed a plan made from {plan.profile.path or 'no file'}, "
            f"not from {path}; calibrate that profile, or run a plan of this one"
        )
    raise ArtifactError(msg)


def _check_devices(plan: Plan, profile: ModelProfile, run_dir: Path) -> None:
    usual = profile.device.name or "gpu"
    kinds = {stage.device.rpartition(":")[0] for stage in plan.stages}
    strangers = sorted(
        kind
        for kind in kinds
        if plan.device_type != profile.device.type
        or (kind != usual and card_called(kind) != card_called(usual))
    )
    if strangers:
        msg = (
            f"{run_dir} ran on {', '.join(strangers)}, but the profile is for {usual}; "
            f"calibrate with a run on {usual} alone"
        )
        raise ArtifactError(msg)


def _check_record(
    plan: Plan, measured: Measured, profile: ModelProfile, run_dir: Path
) -> None:
    """Files are edited: the record must hold every action of its plan, timed."""
    check_layers(plan, [layer.name for layer in profile.layers])
    check_schedule(plan)
    planned = sorted(text for row in plan.schedule.actions for text in row)
    found = sorted(span.action for stage in measured.stages for span in stage.spans)
    if planned != found or len(measured.stages) != plan.num_stages:
        msg = (
            f"the record of {run_dir} has times of {len(found)} actions on "
            f"{len(measured.stages)} stages, not of the {len(planned)} actions on "
            f"{plan.num_stages} stages of its plan; run the plan again"
        )
        raise ArtifactError(msg)
