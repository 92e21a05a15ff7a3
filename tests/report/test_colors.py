import itertools

import numpy as np
import pytest

from planner.report import colors

# Severe forms, on linear RGB: Machado, Oliveira, Fernandes, "A Physiologically-based
# Model for Simulation of Color Vision Deficiency" (2009).
SEEN_BY = {
    "protan": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deutan": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
}
LEAST_SEEN = 2.3  # distance in CIE Lab that is just noticed


def lab(color, reader):
    srgb = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(SEEN_BY[reader]) @ linear, 0, 1)
    to_xyz = [
        [0.4125, 0.3576, 0.1804],
        [0.2127, 0.7152, 0.0722],
        [0.0193, 0.1192, 0.9503],
    ]
    x, y, z = np.cbrt(np.array(to_xyz) @ seen / [0.9505, 1.0, 1.0891])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("reader", ["protan", "deutan"])
@pytest.mark.parametrize("table", ["ACTION_COLORS", "MEMORY_COLORS"])
def test_colour_blind_readers_tell_every_pair_apart(reader, table):
    seen = {name: lab(color, reader) for name, color in getattr(colors, table).items()}
    for first, second in itertools.combinations(seen, 2):
        distance = np.linalg.norm(seen[first] - seen[second])
        assert distance > 4 * LEAST_SEEN, (first, second)


@pytest.mark.parametrize("color", colors.ACTION_COLORS.values())
def test_text_on_a_bar_reads(color):
    light, dark = sorted(
        (
            colors.relative_luminance(color),
            colors.relative_luminance(colors.text_color_on(color)),
        ),
        reverse=True,
    )
    # Contrast that "Web Content Accessibility Guidelines 2" asks of text.
    assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_black_and_white_have_known_luminance():
    assert colors.relative_luminance("#000000") == 0
    assert colors.relative_luminance("#ffffff") == pytest.approx(1)


def test_themed_colours_are_used_for_nothing_else():
    fixed = {*colors.ACTION_COLORS.values(), *colors.MEMORY_COLORS.values()}
    fixed |= {colors.BOTTLENECK_COLOR, colors.RECOMPUTE_COLOR, "#000000", "#ffffff"}
    assert not fixed & set(colors.THEMED)
