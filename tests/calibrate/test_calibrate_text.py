"""What a calibration says: what moved, and whether the plan changes."""

from dataclasses import replace

from calibrate_samples import make_cluster, make_plan, make_profile

from planner.calibrate import Moved, describe_calibration, describe_change
from planner.plan import PlanPrediction

PROFILE, CARDS = make_profile(0), make_cluster()
PLAN = make_plan(PROFILE, CARDS, "1f1b", (2, 3, 2))


def taking(plan, step_s):
    return replace(plan, predicted=PlanPrediction(step_s=step_s, makespan_s=step_s))


def test_times_move_by_a_factor_and_peaks_by_bytes():
    text = describe_calibration(
        [
            Moved(what="stage 0, F", predicted=0.5, measured=0.75),
            Moved(what="stage 0, B", predicted=0.0, measured=0.75),
            Moved(what="peak on a:0", predicted=1024, measured=3072, unit="bytes"),
            Moved(what="peak on a:1", predicted=3072, measured=1024, unit="bytes"),
            Moved(what="peak on a:2", predicted=1024, measured=1024, unit="bytes"),
        ]
    )
    assert text.splitlines() == [
        "calibration  predicted  measured           moves",
        "-----------  ---------  --------  --------------",
        "stage 0, F      500 ms    750 ms         x 1.500",
        "stage 0, B         0 s    750 ms   not predicted",
        "peak on a:0   1.00 KiB  3.00 KiB      + 2.00 KiB",
        "peak on a:1   3.00 KiB  1.00 KiB  2.00 KiB below",
        "peak on a:2   1.00 KiB  1.00 KiB         nothing",
    ]


def test_a_plan_that_stays_is_said_to():
    after = taking(PLAN, 2.0)
    text = describe_change(taking(PLAN, 1.0), after, measured_s=2.2, again_s=2.0)
    assert text.splitlines() == [
        "the run's plan: 1.00 s a step predicted, 2.20 s measured, "
        "2.00 s with the calibrated profile",
        "the plan stays as it was",
    ]


def test_a_plan_that_changes_is_told_with_what_it_gains():
    after = taking(make_plan(PROFILE, CARDS, "gpipe", (3, 2, 2)), 1.5)
    text = describe_change(taking(PLAN, 1.0), after, measured_s=2.2, again_s=2.0)
    assert text.splitlines()[1:] == [
        "the plan changes: 1f1b with 2+3+2 layers becomes gpipe with 3+2+2 layers",
        "1.50 s a step in place of 2.00 s, 25.0 % less",
    ]


def test_a_change_of_recompute_alone_is_a_change():
    after = taking(make_plan(PROFILE, CARDS, "1f1b", (2, 3, 2), "full"), 2.0)
    text = describe_change(taking(PLAN, 1.0), after, measured_s=2.2, again_s=2.0)
    assert "becomes 1f1b with 2+3+2 layers, 5 recomputed\n" in text
    assert text.endswith("2.00 s a step in place of 2.00 s, the same time")


def test_a_plan_that_no_longer_fits_is_told_with_what_is_missing():
    after = taking(make_plan(PROFILE, CARDS, "1f1b", (3, 2, 2)), 3.0)
    text = describe_change(
        taking(PLAN, 1.0), after, measured_s=2.2, again_s=2.0, excess_bytes=1024
    )
    assert "; it does not fit: 1.00 KiB missing\n" in text
    assert text.endswith("3.00 s a step in place of 2.00 s, 50.0 % more")


def test_a_search_that_found_no_better_plan_says_so():
    after = taking(make_plan(PROFILE, CARDS, "1f1b", (3, 2, 2)), 3.0)
    text = describe_change(taking(PLAN, 1.0), after, measured_s=2.2, again_s=2.0)
    assert text.endswith("the run's plan is quicker: raise --time-limit, or keep it")


def test_other_work_is_not_compared():
    after = replace(taking(PLAN, 1.5), global_batch_size=6)
    text = describe_change(taking(PLAN, 1.0), after, measured_s=2.2, again_s=None)
    assert text.splitlines()[1] == (
        "not compared: the run was of 6 sequences a step on 3 cards, "
        "this plan is of 6 sequences a step on 3 cards, 1.50 s a step"
    )
