"""A small plan that tests of artifacts share."""

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


def small_plan(**changes) -> Plan:
    """Two stages of one and two layers, two microbatches of one sequence."""
    fields = {
        "model": ModelInfo(id="tiny"),
        "profile": ProfileRef(path="profiles/tiny.json", sha256="0"),
        "seq_len": 8,
        "global_batch_size": 2,
        "stages": (
            StagePlan(
                index=0, device="a:0", first_layer=0, last_layer=0, layers=("embed",)
            ),
            StagePlan(
                index=1,
                device="a:1",
                first_layer=1,
                last_layer=2,
                layers=("block", "head"),
                recompute=("block",),
            ),
        ),
        "schedule": SchedulePlan(
            name="1f1b",
            num_microbatches=2,
            microbatch_size=1,
            actions=(("0F0", "0F1", "0B0", "0B1"), ("1F0", "1B0", "1F1", "1B1")),
        ),
        "optimizer": OptimizerPlan(name="adamw", bytes_per_parameter=16),
        "predicted": PlanPrediction(step_s=1.0, makespan_s=0.9),
        "solver": SolverReport(
            status="optimal", bound_s=1.0, gap=0.0, candidates=1, solve_s=0.1
        ),
    }
    return Plan(**(fields | changes))
