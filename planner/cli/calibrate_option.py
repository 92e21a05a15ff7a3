"""`planner solve --calibrate RUN_DIR`: plan again with what a run measured.

What the user does not say is as in the run: its profile, its cards, its batch and its
optimizer. The calibrated profile is written beside the new plan, which refers to it.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.errors import ArtifactError

if TYPE_CHECKING:
    from planner.calibrate import Calibration
    from planner.cards import Cluster
    from planner.model_profile import ModelProfile
    from planner.plan import Plan, ProfileRef
    from planner.run_record import Measured


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedRun:
    """A run and the profile that it corrected.

    Attributes:
        plan: That the run followed.
        measured: By the run.
        profile: That its plan was made from.
        calibration: The corrected profile, and what moved.
        path: Where the corrected profile is to be written.
    """

    plan: "Plan"
    measured: "Measured"
    profile: "ModelProfile"
    calibration: "Calibration"
    path: Path

    def reference(self) -> "ProfileRef":
        """How a plan refers to the corrected profile, also before it is written.

        Returns:
            Path and fingerprint of its file.
        """
        from planner import artifact
        from planner.plan import ProfileRef

        content = artifact.to_json(self.calibration.profile).encode()
        return ProfileRef(
            path=str(self.path), sha256=hashlib.sha256(content).hexdigest()
        )

    def text(self) -> str:
        """What moved.

        Returns:
            A table for the user.
        """
        from planner.calibrate import describe_calibration

        return describe_calibration(self.calibration.moved) + "\n"

    def same_work(
        self, global_batch_size: int | None, optimizer: str
    ) -> tuple[int, str]:
        """Fill in what the user left open, so that the plans can be compared.

        Args:
            global_batch_size: As wished; None if not said.
            optimizer: As wished; `auto` if not said.

        Returns:
            Both, as in the run where nothing was said.
        """
        if global_batch_size is None:
            global_batch_size = self.plan.global_batch_size
        return (
            global_batch_size,
            self.plan.optimizer.name if optimizer == "auto" else optimizer,
        )

    def cards(self) -> "Cluster":
        """The cards of the run.

        Returns:
            As the plan of the run has them, with what the run says of links and
            memory.
        """
        from planner.calibrate import cards_of_run

        return cards_of_run(self.plan, self.profile, self.calibration.profile)

    def change(self, found: "Plan", cluster: "Cluster") -> str:
        """Compare the run's plan with a new one.

        Args:
            found: Made with the corrected profile.
            cluster: That it is for.

        Returns:
            Lines for the user.
        """
        from planner.calibrate import describe_change
        from planner.solve import judge_again  # pulp

        same_batch = found.global_batch_size == self.plan.global_batch_size
        if len(cluster) != self.plan.num_processes or not same_batch:
            return describe_change(
                self.plan, found, measured_s=self.measured.step_s, again_s=None
            )
        again = judge_again(self.plan, self.calibration.profile, cluster)
        return describe_change(
            self.plan,
            found,
            measured_s=self.measured.step_s,
            again_s=again.step_s,
            excess_bytes=max(again.excess_bytes),
        )


def check_cards_options(
    gpus: str | None, run_dir: Path | None, **of_cards: str | None
) -> None:
    """Refuse options of `solve` that leave the cards open.

    Args:
        gpus: As the user wrote it, if anything.
        run_dir: Of the run to calibrate with, if any: its cards are the default.
        of_cards: Options by name that say something of the cards.

    Raises:
        click.UsageError: There are no cards, or only something about them.
    """
    if gpus is not None:
        return
    if run_dir is None:
        msg = "Missing option '--gpus'."
        raise click.UsageError(msg)
    if given := [f"--{name}" for name, value in of_cards.items() if value is not None]:
        msg = f"{', '.join(given)} without --gpus: the cards are those of the run."
        raise click.UsageError(msg)


def calibrated_run(run_dir: Path, profile: Path | None, output: Path) -> CalibratedRun:
    """Correct a profile by a run.

    Args:
        run_dir: Of the run.
        profile: To be corrected; None for the one that the run's plan was made from.
        output: Where the new plan is to be written.

    Returns:
        The run, and the corrected profile.

    Raises:
        ArtifactError: There is no such run or profile, the run says nothing about
            it, or the corrected profile would take the place of what it is made from.
    """
    from planner import artifact
    from planner.calibrate import calibrate, check_run
    from planner.model_profile import load_profile, sha256_of
    from planner.run_record import load_metrics, load_run

    artifact.check_writable(output)
    if not run_dir.is_dir():
        msg = f"{run_dir} is no run directory; name one that planner run PLAN wrote"
        raise ArtifactError(msg)
    record = load_run(run_dir)
    source = profile or _profile_of(record.plan, run_dir)
    costs = load_profile(source)
    measured = check_run(
        record,
        len(load_metrics(run_dir)),
        costs,
        run_dir=run_dir,
        path=source,
        sha256=sha256_of(source),
    )
    path = output.with_name(f"{output.stem}.calibrated-profile.json")
    if path.resolve() == source.resolve():
        msg = (
            f"{path} would be overwritten by its own calibration; name another plan "
            "with -o"
        )
        raise ArtifactError(msg)
    return CalibratedRun(
        plan=record.plan,
        measured=measured,
        profile=costs,
        calibration=calibrate(costs, record.plan, measured, source=str(run_dir)),
        path=path,
    )


def _profile_of(plan: "Plan", run_dir: Path) -> Path:
    path = Path(plan.profile.path)
    if not plan.profile.path or not path.is_file():
        msg = (
            f"the plan of {run_dir} was made from {plan.profile.path or 'no profile'}, "
            "which is not here; call from the folder where it was made, or name the "
            "file: planner solve PROFILE --calibrate RUN_DIR"
        )
        raise ArtifactError(msg)
    return path
