"""Plans for wishes that people have, and the words for those that cannot be."""

import dataclasses
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from solver_profiles import REF, cluster, layers, random_cluster, random_profile

from planner import artifact
from planner.cards import LINKS, Link
from planner.errors import InfeasibleError, WishError
from planner.model_profile import LayerProfile, ModelProfile, ProfiledDevice
from planner.plan import Plan
from planner.schedule.named import SCHEDULES
from planner.solve import Wishes, best_plan, check_plan
from planner.solve.setting import PLANNED
from planner.units import GIB


def counts(plan):
    return tuple(len(stage.layers) for stage in plan.stages)


def solve(profile, cards, **wishes):
    """Under 1F1B unless said, whose cuts are easy to tell by heart; on all cards."""
    wishes = Wishes(**{"schedule": "1f1b", "keeps_cards": True, **wishes})
    return best_plan(profile, cards, wishes, profile_ref=REF)


def language_model(num_blocks=30, head=9.0, **same):
    """An embedding that takes no time, blocks of 1 ms, and a heavy head."""
    block = {"forward_s": 1e-3, "backward_s": 2e-3, "num_parameters": 10, **same}
    blocks = [
        LayerProfile(name=f"model.layers.{i}", kind="block", **block)
        for i in range(num_blocks)
    ]
    head_s = {"forward_s": head * 1e-3, "backward_s": 2 * head * 1e-3}
    return ModelProfile(
        layers=(
            LayerProfile(name="model.embed_tokens", kind="embedding"),
            *blocks,
            LayerProfile(name="head", kind="head", **head_s),
        )
    )


def test_the_stage_of_a_heavy_head_gets_fewer_blocks():
    plan = solve(language_model(), cluster(2), global_batch_size=8)
    assert counts(plan)[0] - 1 in (19, 20)
    assert plan.solver.status == "optimal"


def test_a_huge_head_stands_alone():
    plan = solve(language_model(num_blocks=6, head=50.0), cluster(3))
    assert counts(plan)[-1] == 1


@pytest.mark.parametrize(
    ("num_layers", "num_cards"), [(5, 4), (13, 4), (10, 3), (7, 2), (30, 4), (42, 16)]
)
def test_any_number_of_equal_layers_is_dealt_out_evenly(num_layers, num_cards):
    profile = ModelProfile(layers=layers([1.0] * num_layers))
    plan = solve(profile, cluster(num_cards))
    assert sum(counts(plan)) == num_layers
    assert max(counts(plan)) == -(-num_layers // num_cards)
    assert min(counts(plan)) >= 1


def test_every_card_is_used_even_for_one_layer_each():
    plan = solve(ModelProfile(layers=layers([1.0] * 8)), cluster(8))
    assert counts(plan) == (1,) * 8


def test_one_card_gets_everything():
    plan = solve(ModelProfile(layers=layers([1.0, 2.0])), cluster(1))
    assert counts(plan) == (2,)
    # 8 microbatches of F = 3 and B = 6.
    assert plan.predicted.step_s == 8 * 9.0
    assert plan.predicted.bubble_fraction == 0.0


def test_fewer_microbatches_than_stages_are_planned():
    profile = ModelProfile(layers=layers([1.0] * 4))
    plan = solve(profile, cluster(4), global_batch_size=2)
    assert plan.schedule.num_microbatches == 2
    assert plan.predicted.step_s == (2 + 4 - 1) * 3.0


def test_the_default_batch_is_at_least_two_microbatches_a_stage():
    profile = ModelProfile(layers=layers([1.0] * 10), microbatch_size=2)
    assert solve(profile, cluster(2)).global_batch_size == 2 * 8
    assert solve(profile, cluster(10)).global_batch_size == 2 * 20


def test_a_small_card_gets_fewer_layers():
    profile = ModelProfile(layers=layers([1.0] * 12, num_parameters=10))
    cards = cluster(4, memory_bytes=12 * 16 * 10)
    small = dataclasses.replace(cards.devices[3], memory_bytes=16 * 10)
    cards = dataclasses.replace(cards, devices=(*cards.devices[:3], small))
    assert counts(solve(profile, cards))[3] == 1


def test_a_quick_card_gets_more_layers():
    profile = ModelProfile(layers=layers([1.0] * 12))
    plan = solve(profile, cluster(2, speeds=[2.0, 1.0]))
    assert counts(plan) == (8, 4)


def test_recompute_is_chosen_only_where_memory_asks_for_it():
    profile = language_model(8, 1.0, activation_bytes=100)
    roomy = solve(profile, cluster(2), schedule="1f1b")
    assert [stage.recompute for stage in roomy.stages] == [(), ()]
    # Stage 0 holds two microbatches in flight, stage 1 only one.
    tight = solve(profile, cluster(2, memory_bytes=1200), schedule="1f1b")
    assert len(tight.stages[0].recompute) == 2
    assert tight.stages[1].recompute == ()
    assert tight.predicted.step_s > roomy.predicted.step_s


def test_full_recompute_spares_only_the_ends():
    plan = solve(language_model(4), cluster(2), recompute="full")
    names = {name for stage in plan.stages for name in stage.recompute}
    assert names == {f"model.layers.{i}" for i in range(4)}


def test_the_best_microbatch_size_is_found():
    # Twice the sequences in 1.2 times the time.
    one = layers([1.0] * 4)
    two = layers([1.2] * 4)
    profile = ModelProfile(layers=one, microbatches={"2": two})
    plan = solve(profile, cluster(2), global_batch_size=32)
    assert plan.schedule.microbatch_size == 2
    fixed = solve(profile, cluster(2), global_batch_size=32, microbatch_size=1)
    assert fixed.schedule.microbatch_size == 1


def test_the_optimizer_step_counts():
    device = ProfiledDevice(optimizer_s_per_parameter={"adamw": 0.1})
    profile = ModelProfile(layers=layers([1.0] * 4, num_parameters=5), device=device)
    plan = solve(profile, cluster(2))
    assert plan.predicted.optimizer_s == pytest.approx(2 * 5 * 0.1)
    assert plan.predicted.step_s == pytest.approx(plan.predicted.makespan_s + 1.0)
    assert solve(profile, cluster(2), optimizer="sgd").predicted.optimizer_s == 0.0


def test_the_exchange_of_what_is_tied_counts_where_two_cards_hold_it():
    rows = layers([1.0] * 4, num_parameters=100, num_tied_parameters=100)
    profile = ModelProfile(layers=rows, ties=(("layer.0", "layer.3"),), dtype="float32")
    slow = Link(name="slow", bandwidth=10.0, latency_s=0.5)
    plan = solve(profile, cluster(2, link=slow), schedule="1f1b")
    # Two pieces of half of 400 bytes, one after the other.
    assert plan.predicted.tie_s == pytest.approx(2 * (0.5 + 200 / 10.0))
    assert plan.predicted.step_s == pytest.approx(
        plan.predicted.makespan_s + plan.predicted.tie_s
    )
    assert plan.solver.status == "optimal"
    both_here = solve(
        profile, cluster(2, link=slow), schedule="zb-v", global_batch_size=8
    )
    assert both_here.predicted.tie_s == 0


def test_layers_that_belong_together_are_not_parted():
    rows = layers([1.0] * 6)
    profile = ModelProfile(layers=rows, uncuttable=(("layer.1", "layer.4"),))
    assert counts(solve(profile, cluster(2))) in ((1, 5), (5, 1))


def test_a_given_cut_is_taken_as_it_is():
    profile = language_model()
    plan = solve(profile, cluster(2), layers_per_stage=(31, 1))
    assert counts(plan) == (31, 1)
    assert plan.solver.status == "optimal"
    best = solve(profile, cluster(2))
    assert best.predicted.step_s < plan.predicted.step_s
    assert plan.solver.free_cut.step_s == best.predicted.step_s
    assert plan.solver.free_cut.schedule == best.schedule.name
    assert best.solver.free_cut is None


def test_a_wished_cut_that_nothing_beats_costs_nothing():
    profile = ModelProfile(layers=layers([1.0] * 6))
    wishes = {"schedule": "1f1b", "layers_per_stage": (3, 3)}
    plan = solve(profile, cluster(2), **wishes)
    assert plan.solver.free_cut.step_s == plan.predicted.step_s
    # The wish is priced even where it leaves the solver no time for anything else.
    hasty = solve(profile, cluster(2), **wishes, time_limit_s=0)
    assert hasty.solver.free_cut.step_s <= hasty.predicted.step_s


@pytest.mark.parametrize("schedule", [*SCHEDULES, PLANNED, "auto"])
@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_a_wished_cut_is_kept_under_every_schedule(schedule, data):
    named = SCHEDULES.get(schedule, SCHEDULES["1f1b"])
    num_stages = 2 * named.min_stages_per_device
    numbers = st.integers(1, 4)
    wished = data.draw(st.tuples(*[numbers] * num_stages))
    profile = ModelProfile(layers=layers([1.0] * sum(wished)))
    wishes = {"schedule": schedule, "layers_per_stage": wished}
    plan = solve(profile, cluster(2), **wishes, global_batch_size=4)
    assert counts(plan) == wished
    work_s = max(
        4 * 3.0 * sum(wished[stage] for stage in card.stages) for card in plan.cards
    )
    assert plan.solver.bound_s >= work_s * (1 - 1e-6)


def test_a_given_cut_stays_where_several_stages_share_a_card():
    kept = {"activation_bytes": 100, "recompute_activation_bytes": 10}
    rows = layers([1.0] * 12, **kept, output_bytes=10, forward_peak_bytes=110)
    small = cluster(2, memory_bytes=2000)
    wishes = {"schedule": "interleaved-1f1b", "layers_per_stage": (6, 2, 2, 2)}
    plan = solve(ModelProfile(layers=rows), small, **wishes)
    # Recompute is needed, so another cut would be quicker.
    assert any(stage.recompute for stage in plan.stages)
    assert counts(plan) == (6, 2, 2, 2)


def test_what_others_would_do_stands_beside_the_plan():
    plan = solve(language_model(), cluster(2), global_batch_size=8)
    others = {baseline.name: baseline for baseline in plan.baselines}
    assert others["even layers"].layers_per_stage == (16, 16)
    assert others["single card"].step_s == pytest.approx(8 * 39 * 3e-3)
    assert len(others) == 10
    for baseline in others.values():
        assert baseline.fits
        assert baseline.judgement


def test_tokens_per_second_are_those_of_the_whole_batch():
    profile = dataclasses.replace(language_model(4), seq_len=128)
    plan = solve(profile, cluster(2), global_batch_size=4)
    expected = 4 * 128 / plan.predicted.step_s
    assert plan.predicted.tokens_per_s == pytest.approx(expected)


def test_the_fixed_time_of_an_action_comes_with_every_action():
    device = ProfiledDevice(step_overhead_s=0.5)
    profile = ModelProfile(layers=layers([1.0, 1.0]), device=device)
    plan = solve(profile, cluster(1), global_batch_size=3)
    assert plan.predicted.step_s == pytest.approx(3 * (2.0 + 0.5 + 4.0 + 0.5))


@pytest.mark.parametrize("schedule", ["zb-v", "interleaved-1f1b", "planned"])
def test_several_stages_a_card_are_quicker_than_one(schedule):
    profile = ModelProfile(layers=layers([1.0] * 16, output_bytes=10))
    one = solve(profile, cluster(4))
    several = solve(profile, cluster(4), schedule=schedule)
    assert several.predicted.step_s < one.predicted.step_s
    assert several.schedule.name == schedule
    assert several.num_devices == 4
    assert several.num_stages == 8 or schedule == "planned"
    check_plan(several, profile)


def test_the_memory_of_the_stages_of_a_card_adds_up():
    profile = ModelProfile(
        layers=layers([1.0] * 8, num_parameters=10, activation_bytes=100),
        ties=(("layer.0", "layer.7"),),
    )
    plan = solve(profile, cluster(2, memory_bytes=3000), schedule="zb-v")
    # The tied layers are both on the first card, which counts them once.
    weights = [stage.predicted.memory_bytes.weights for stage in plan.stages]
    assert sum(weights) == 2 * 10 * 7
    for device in range(2):
        stages = plan.stages_of_device(device)
        used_bytes = sum(stage.predicted.memory_bytes.total for stage in stages)
        assert used_bytes <= 3000


def test_a_plan_survives_its_file():
    plan = solve(language_model(4), cluster(2))
    assert artifact.from_json(artifact.to_json(plan), Plan, source="plan") == plan


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"global_batch_size": 0}, "--global-batch-size 0"),
        ({"microbatch_size": 3, "global_batch_size": 8}, "microbatches of 3 do not"),
        ({"microbatch_size": 4, "global_batch_size": 8}, "no microbatch size 4, only"),
        ({"schedule": "zigzag"}, "unknown schedule 'zigzag'"),
        (
            {"schedule": "zb-v", "layers_per_stage": (3, 3)},
            "has 2 stages a device, not 1",
        ),
        (
            {"schedule": "interleaved-1f1b", "layers_per_stage": (3, 3)},
            "has at least 2 stages a device, not 1",
        ),
        ({"optimizer": "lion"}, "unknown optimizer 'lion'"),
        ({"layers_per_stage": (3, 3, 3)}, "names 3 stages for 2 cards"),
        ({"layers_per_stage": (3, 4)}, "adds up to 7 layers, but the profile has 6"),
        ({"layers_per_stage": (6, 0)}, "at least one layer"),
        ({"layers_per_stage": (2, 4)}, "parts 'layer.1' from 'layer.2'"),
    ],
)
def test_a_wish_that_cannot_be_met_is_named(wishes, words):
    profile = ModelProfile(
        layers=layers([1.0] * 6), uncuttable=(("layer.1", "layer.2"),)
    )
    with pytest.raises(WishError) as caught:
        solve(profile, cluster(2), **wishes)
    assert words in str(caught.value)


def test_a_backward_is_split_only_where_the_profile_says_how_long_its_parts_take():
    block = LayerProfile(name="a", forward_s=1.0, backward_s=2.0)
    profile = ModelProfile(layers=(block, dataclasses.replace(block, name="b")))
    with pytest.raises(WishError, match="say how long the parts take for 'a'"):
        solve(profile, cluster(2), schedule="zb-h1")
    plan = solve(profile, cluster(2), schedule="auto")
    kinds = {action[1] for row in plan.schedule.actions for action in row}
    assert kinds == {"F", "B"}


def test_a_batch_that_no_profiled_size_divides_is_refused():
    profile = ModelProfile(layers=layers([1.0]), microbatch_size=4)
    with pytest.raises(WishError, match=r"\(4\) divides the global batch of 6"):
        solve(profile, cluster(1), global_batch_size=6)


def test_more_cards_than_layers_are_refused():
    with pytest.raises(WishError, match="4 cards for 3 layers"):
        solve(ModelProfile(layers=layers([1.0] * 3)), cluster(4))
    profile = ModelProfile(
        layers=layers([1.0] * 4), uncuttable=(("layer.0", "layer.3"),)
    )
    with pytest.raises(WishError, match="allow only 1 stages"):
        solve(profile, cluster(2))


def test_no_time_still_gives_a_plan_and_an_honest_gap():
    rng = random.Random(1)
    rows = layers([rng.uniform(1, 3) for _ in range(40)], output_bytes=10)
    profile = ModelProfile(layers=rows)
    cards = cluster(6, link=dataclasses.replace(LINKS["free"], latency_s=3.0))
    hurried = solve(profile, cards, time_limit_s=0.0, schedule="1f1b")
    patient = solve(profile, cards, schedule="1f1b")
    assert patient.solver.status == "optimal"
    assert hurried.solver.bound_s <= patient.predicted.step_s * (1 + 1e-6)
    assert hurried.predicted.step_s >= patient.predicted.step_s * (1 - 1e-6)
    assert hurried.solver.status == "feasible"
    gap = 1 - hurried.solver.bound_s / hurried.predicted.step_s
    assert hurried.solver.gap == pytest.approx(gap)


def step_s(profile, cards):
    try:
        # With more room `auto` may go back to an optimizer that changes training
        # less and is slower, so this is about one optimizer.
        plan = solve(profile, cards, global_batch_size=3, optimizer="adamw")
        return plan.predicted.step_s
    except InfeasibleError:
        return float("inf")


@settings(max_examples=40, deadline=None)
@given(rng=st.randoms(use_true_random=False), more=st.integers(0, 3000))
def test_more_memory_never_makes_a_plan_slower(rng, more):
    profile, cards = random_profile(rng), random_cluster(rng, 2)
    devices = tuple(
        dataclasses.replace(d, memory_bytes=d.memory_bytes + more)
        for d in cards.devices
    )
    if sum(profile.legal_cuts()):
        larger = dataclasses.replace(cards, devices=devices)
        assert step_s(profile, larger) <= step_s(profile, cards) * (1 + 1e-6)


@settings(max_examples=30, deadline=None)
@given(rng=st.randoms(use_true_random=False), factor=st.sampled_from([1e-6, 0.3, 1e3]))
def test_scaling_all_times_scales_the_step(rng, factor):
    profile = random_profile(rng)
    cards = dataclasses.replace(random_cluster(rng, 2), links=(LINKS["free"],))
    device = dataclasses.replace(
        profile.device,
        step_overhead_s=profile.device.step_overhead_s * factor,
        optimizer_s_per_parameter={
            name: rate * factor
            for name, rate in profile.device.optimizer_s_per_parameter.items()
        },
    )
    rows = tuple(
        dataclasses.replace(
            x, forward_s=x.forward_s * factor, backward_s=x.backward_s * factor
        )
        for x in profile.layers
    )
    scaled = dataclasses.replace(profile, layers=rows, device=device)
    if sum(profile.legal_cuts()):
        expected_s = step_s(profile, cards) * factor
        assert step_s(scaled, cards) == pytest.approx(expected_s, rel=1e-6)


def test_a_plan_names_its_profile_and_validates_again():
    profile = language_model(6)
    plan = solve(profile, cluster(3, memory_bytes=GIB))
    assert plan.profile == REF
    check_plan(plan, profile)
    assert json.loads(artifact.to_json(plan))["schedule"]["actions"][0][0] == "0F0"
