"""Times that are not to be trusted are told in one line."""

from planner.measure.survey import spread_warning
from planner.model_profile import LayerProfile


def test_all_wide_spreads_are_one_line_that_names_the_widest():
    steady = LayerProfile(name="embedding", forward_spread=0.02, backward_spread=0.1)
    some = LayerProfile(name="layers.0", forward_spread=0.2, backward_spread=0.1)
    most = LayerProfile(name="head", forward_spread=0.0, backward_spread=0.25)
    line = spread_warning({1: (steady, some), 2: (steady, most)})
    assert line.startswith(
        "2 of 8 times vary by more than 10.0 % between quartiles, most of all B of "
        "head at microbatch size 2 (25.0 %)"
    )
    assert "\n" not in line


def test_narrow_spreads_are_not_worth_a_line():
    steady = LayerProfile(name="embedding", forward_spread=0.1, backward_spread=0.1)
    assert spread_warning({1: (steady,)}) is None
