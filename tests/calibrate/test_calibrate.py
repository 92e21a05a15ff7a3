"""A calibrated profile predicts the run, and moves nothing that was right."""

import random
from dataclasses import fields, replace

import pytest
from calibrate_samples import (
    FREE,
    SCHEDULES,
    make_cluster,
    make_plan,
    make_profile,
    make_run,
    predicted_again,
    scaled,
)

from planner.calibrate import calibrate, cards_of_run
from planner.model_profile import LayerProfile
from planner.run_record import Measured, MeasuredSpan
from planner.solve import judge_again

each_schedule = pytest.mark.parametrize(("schedule", "counts", "recompute"), SCHEDULES)
LAYER_TIMES = [f.name for f in fields(LayerProfile) if f.name.endswith("_s")]


def made(schedule, counts, recompute, seed=0, **cluster):
    profile, cards = make_profile(seed), make_cluster(**cluster)
    return profile, cards, make_plan(profile, cards, schedule, counts, recompute)


def assert_same_times(one, other):
    assert one.device.step_overhead_s == pytest.approx(other.device.step_overhead_s)
    assert one.device.optimizer_s_per_parameter == pytest.approx(
        other.device.optimizer_s_per_parameter
    )
    assert one.device.unpredicted_bytes == other.device.unpredicted_bytes
    for size in one.microbatch_sizes:
        for ours, theirs in zip(
            one.layers_at(size), other.layers_at(size), strict=True
        ):
            for name in LAYER_TIMES:
                assert getattr(ours, name) == pytest.approx(getattr(theirs, name)), name


def uneven(seed):
    """Every kind of action of every stage by a factor of its own."""
    rng = random.Random(seed)

    def change(stage, times):
        names = ("forward_s", "backward_s", "input_grad_s", "weight_grad_s")
        factors = {name: rng.uniform(0.7, 2.5) for name in names}
        return replace(times, **{n: getattr(times, n) * f for n, f in factors.items()})

    return change


@each_schedule
def test_a_run_that_went_as_predicted_moves_nothing(schedule, counts, recompute):
    profile, cards, plan = made(schedule, counts, recompute)
    found = calibrate(profile, plan, make_run(plan, profile, cards))
    assert_same_times(found.profile, profile)
    assert [entry.measured for entry in found.moved] == pytest.approx(
        [entry.predicted for entry in found.moved]
    )
    again = judge_again(plan, found.profile, cards_of_run(plan, profile, found.profile))
    assert again.step_s == pytest.approx(plan.predicted.step_s)


@each_schedule
def test_a_run_twice_as_slow_in_everything_gives_twice_the_step(
    schedule, counts, recompute
):
    profile, cards, plan = made(schedule, counts, recompute)
    slow = make_run(
        plan,
        profile,
        cards,
        lambda _, times: scaled(times, 2),
        optimizer_s=2 * plan.predicted.optimizer_s,
        tie_s=2 * plan.predicted.tie_s,
    )
    found = calibrate(profile, plan, slow).profile
    again = judge_again(plan, found, cards_of_run(plan, profile, found))
    assert again.step_s == pytest.approx(2 * plan.predicted.step_s)
    assert again.step_s == pytest.approx(slow.step_s)
    for before, after in zip(profile.layers, found.layers, strict=True):
        assert after.forward_s == pytest.approx(2 * before.forward_s)
        assert after.weight_grad_s == pytest.approx(2 * before.weight_grad_s)


@pytest.mark.parametrize("seed", range(3))
@each_schedule
def test_the_calibrated_profile_predicts_the_step_of_an_uneven_run(
    schedule, counts, recompute, seed
):
    profile, cards, plan = made(schedule, counts, recompute, seed)
    run = make_run(plan, profile, cards, uneven(seed), optimizer_s=0.7)
    found = calibrate(profile, plan, run).profile
    again = judge_again(plan, found, cards_of_run(plan, profile, found))
    assert again.step_s == pytest.approx(run.step_s)
    assert again.optimizer_s == pytest.approx(0.7)


@each_schedule
def test_calibrating_again_with_the_same_times_changes_nothing(
    schedule, counts, recompute
):
    profile, cards, plan = made(schedule, counts, recompute)
    peaks = [card.own_bytes + 7 for card in plan.cards]
    run = make_run(plan, profile, cards, uneven(1), optimizer_s=0.7, peak_bytes=peaks)
    first = calibrate(profile, plan, run).profile
    cards = cards_of_run(plan, profile, first)
    renewed = predicted_again(plan, first, cards)
    second = calibrate(first, renewed, run).profile
    assert_same_times(second, first)
    for before, after in zip(
        cards.devices, cards_of_run(renewed, first, second).devices, strict=True
    ):
        assert after.reserve_bytes == before.reserve_bytes == 7
        assert after.speed == pytest.approx(before.speed)


def test_layers_of_a_stage_share_its_factor_at_every_microbatch_size():
    profile = make_profile(0, step_overhead_s=0.0)
    cards = make_cluster()
    plan = make_plan(profile, cards, "1f1b", (2, 3, 2))
    factors = (1.5, 1.0, 3.0)
    run = make_run(plan, profile, cards, lambda s, times: scaled(times, factors[s]))
    found = calibrate(profile, plan, run).profile
    wanted = [1.5] * 2 + [1.0] * 3 + [3.0] * 2
    for size in (1, 2):
        for before, after, factor in zip(
            profile.layers_at(size), found.layers_at(size), wanted, strict=True
        ):
            for name in LAYER_TIMES:
                assert getattr(after, name) == pytest.approx(
                    factor * getattr(before, name)
                ), name


def test_recompute_that_did_not_run_goes_with_forward_and_else_with_backward():
    # Layers 0 and 6 are never recomputed.
    profile, cards, plan = made("1f1b", (3, 2, 2), "full")
    profile = replace(profile, device=replace(profile.device, step_overhead_s=0.0))
    plan = make_plan(profile, cards, "1f1b", (3, 2, 2), "full")
    run = make_run(
        plan,
        profile,
        cards,
        lambda _, x: replace(x, forward_s=2 * x.forward_s, backward_s=3 * x.backward_s),
    )
    found = calibrate(profile, plan, run).profile
    ratios = [
        after.again_s / before.again_s
        for before, after in zip(profile.layers, found.layers, strict=True)
    ]
    assert ratios == pytest.approx([2, 3, 3, 3, 3, 3, 2])


def with_pauses(measured: Measured, pause_s: float) -> Measured:
    """Every action begins a pause later than what came before it ended."""
    starts = sorted({s.start_s for stage in measured.stages for s in stage.spans})
    assert starts == pytest.approx(range(len(starts))), "a step of seconds"

    def later(span: MeasuredSpan) -> MeasuredSpan:
        delay_s = pause_s * round(span.start_s)
        return replace(span, start_s=span.start_s + delay_s, end_s=span.end_s + delay_s)

    stages = [
        replace(stage, spans=tuple(map(later, stage.spans)))
        for stage in measured.stages
    ]
    return replace(measured, stages=tuple(stages))


def test_pauses_between_actions_become_their_fixed_time():
    profile = make_profile(0, step_overhead_s=0.0)
    one_s = [replace(x, forward_s=0.5, backward_s=0.5) for x in profile.layers[:6]]
    profile = replace(profile, layers=tuple(one_s), microbatches={}, ties=())
    cards = make_cluster(speeds=(1.0, 1.0, 1.0), link=FREE)
    plan = make_plan(profile, cards, "1f1b", (2, 2, 2))
    run = with_pauses(make_run(plan, profile, cards), 0.25)
    found = calibrate(profile, plan, run).profile
    assert found.device.step_overhead_s == pytest.approx(0.25)
    for before, after in zip(profile.layers, found.layers, strict=True):
        assert after.forward_s == pytest.approx(before.forward_s)
        assert after.backward_s == pytest.approx(before.backward_s)
    assert found.cluster is None, "the transfers took no time"
    again = judge_again(plan, found, cards_of_run(plan, profile, found))
    assert again.timeline.makespan_s == pytest.approx(1.25 * plan.predicted.makespan_s)


@pytest.mark.parametrize("link", [None, FREE], ids=["slow", "free"])
def test_a_link_is_as_slow_as_its_transfers_were(link):
    profile, cards, plan = made("1f1b", (2, 3, 2), "none", link=link)
    run = make_run(
        plan,
        profile,
        cards,
        # 0.3 s between devices 0 and 1, 0.6 s between 1 and 2, both ways.
        lambda stage, times: replace(
            times,
            send_forward_s=0.3 * (stage + 1) if stage < 2 else 0.0,
            send_backward_s=0.3 * stage,
        ),
    )
    found = calibrate(profile, plan, run).profile
    cluster = cards_of_run(plan, profile, found)
    assert cluster.links_from == "measured"
    assert [link.transfer_s(1000) for link in cluster.links] == pytest.approx(
        [0.3, 0.6]
    )


def test_transfers_no_longer_than_a_pause_are_free():
    profile, cards, plan = made("1f1b", (2, 3, 2), "none")
    run = make_run(
        plan,
        profile,
        cards,
        lambda _, times: replace(times, send_forward_s=0.0, send_backward_s=0.0),
    )
    found = calibrate(profile, plan, run).profile
    links = cards_of_run(plan, profile, found).links
    assert [link.name for link in links] == ["free", "free"]


def test_the_largest_excess_over_a_predicted_peak_is_kept_free_on_every_card():
    profile, cards, plan = made("1f1b", (2, 3, 2), "none")
    peaks = [
        card.own_bytes + more
        for card, more in zip(plan.cards, (5, 40, -9), strict=True)
    ]
    run = make_run(plan, profile, cards, peak_bytes=peaks)
    found = calibrate(profile, plan, run).profile
    assert found.device.unpredicted_bytes == 40
    again = judge_again(plan, found, cards_of_run(plan, profile, found))
    for card, device in zip(plan.cards, range(3), strict=True):
        assert again.memory()[device].total == card.memory_bytes.total + 40


def test_peaks_below_the_prediction_free_nothing():
    profile, cards, plan = made("1f1b", (2, 3, 2), "none")
    run = make_run(plan, profile, cards, peak_bytes=[1, 1, 1])
    found = calibrate(profile, plan, run)
    assert found.profile.device.unpredicted_bytes == 0
    assert [x.measured for x in found.moved if x.unit == "bytes"] == [1, 1, 1]


def test_an_optimizer_that_was_never_timed_gets_its_time_and_others_keep_theirs():
    profile, cards, _ = made("1f1b", (2, 3, 2), "none")
    device = replace(profile.device, optimizer_s_per_parameter={"sgd": 0.5})
    profile = replace(profile, device=device)
    plan = make_plan(profile, cards, "1f1b", (2, 3, 2))
    run = make_run(plan, profile, cards, optimizer_s=0.7)
    found = calibrate(profile, plan, run).profile
    assert found.device.optimizer_s_per_parameter["sgd"] == 0.5
    again = judge_again(plan, found, cards_of_run(plan, profile, found))
    assert again.optimizer_s == pytest.approx(0.7)


def test_layers_of_which_no_time_was_known_stay_without():
    profile = make_profile(0)
    silent = [replace(x, forward_s=0.0, recompute_s=0.0) for x in profile.layers]
    profile = replace(profile, layers=tuple(silent), microbatches={})
    cards = make_cluster(speeds=(1.0, 1.0, 1.0))
    plan = make_plan(profile, cards, "1f1b", (2, 3, 2))
    run = make_run(plan, profile, cards, lambda _, x: replace(x, forward_s=1.0))
    found = calibrate(profile, plan, run).profile
    assert [layer.forward_s for layer in found.layers] == [0.0] * 7


def test_the_profile_says_which_run_it_was_calibrated_by():
    profile, cards, plan = made("1f1b", (2, 3, 2), "none")
    run = make_run(plan, profile, cards)
    found = calibrate(profile, plan, run, source="runs/a").profile
    assert found.calibrated_by == "runs/a"
