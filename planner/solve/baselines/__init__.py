"""What others would do: the same work as people do it today, on the same profile.

splits of a pipeline    by other rules, under the plan's schedule
cards in turn           layers placed on cards, without a pipeline
ZeRO-3                  every layer spread over all cards
copies                  the whole model on every card
single card             no second card at all
"""

from planner.plan import Baseline
from planner.solve.baselines.judgement import judged
from planner.solve.baselines.pipelines import splits, turns
from planner.solve.baselines.sharded import sharded
from planner.solve.baselines.whole import copies, single_card
from planner.solve.candidate import Candidate
from planner.solve.setting import Setting

__all__ = ["baselines"]


def baselines(setting: Setting, best: Candidate | None) -> tuple[Baseline, ...]:
    """Judge every other way to do the same work.

    Args:
        setting: Of the plan, or the simplest that was tried if nothing fits.
        best: The plan; None if nothing fits.

    Returns:
        One entry a way, whether it fits or not; none beside a plan for one card,
        and no pipeline over more cards than a model can be cut for.
    """
    if len(setting.cluster) == 1:
        return ()
    num_possible = 1 + sum(setting.profile.legal_cuts())
    is_pipeline = len(setting.cluster) <= num_possible
    entries = [
        *(splits(setting, best) if is_pipeline else ()),
        *(turns(setting) if is_pipeline else ()),
        sharded(setting),
        copies(setting),
        single_card(setting),
    ]
    step_s = best.step_s if best else None
    return tuple(judged(entry, step_s) for entry in entries)
