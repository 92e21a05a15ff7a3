"""Settings whose splits can be counted, for the tests of what others would do."""

from planner.model_profile import LayerProfile, ModelProfile
from planner.solve.settings import settings_of
from planner.solve.wishes import Wishes


def setting(profile, cards, **wishes):
    """The first setting that is searched, under 1F1B unless said."""
    return settings_of(profile, cards, Wishes(**{"schedule": "1f1b", **wishes}))[0]


def counts(cut):
    return [last - first + 1 for first, last in cut]


def language_model(num_blocks, *, parameters=(0, 0, 0), **fields):
    """An embedding, blocks and a head with so many parameters."""
    first, each, last = parameters
    blocks = [
        LayerProfile(name=f"block.{i}", num_parameters=each) for i in range(num_blocks)
    ]
    return ModelProfile(
        layers=(
            LayerProfile(name="embedding", kind="embedding", num_parameters=first),
            *blocks,
            LayerProfile(name="head", kind="head", num_parameters=last),
        ),
        **fields,
    )
