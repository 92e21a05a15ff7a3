"""The one colour table of the project, safe for colour-blind readers.

Actions have the colours of Okabe and Ito ("Color Universal Design"), items of
memory those of Tol's "bright" scheme ("Colour Schemes"): in both, every pair
stays apart for protan and deutan readers. They read on white and on black, so
only what is named in `THEMED` changes with the reader's light or dark setting.
"""

ACTION_COLORS = {
    "F": "#0072b2",
    "B": "#e69f00",
    "I": "#cc79a7",
    "W": "#009e73",
}
RECOMPUTE_COLOR = "#56b4e9"
MEMORY_COLORS = {
    "weights": "#4477aa",
    "gradients": "#66ccee",
    "optimizer": "#228833",
    "activations": "#ccbb44",
    "workspace": "#ee6677",
    "communication": "#aa3377",
    "overhead": "#bbbbbb",
}
BOTTLENECK_COLOR = "#d55e00"
SERIES_COLOR = "#0072b2"
EVALUATION_COLOR = "#d55e00"

# Drawn in these exact values, which nothing else uses, and turned into the
# page's own colours when a figure is embedded.
INK = "#1c1d21"
FAINT = "#6d6e76"
LINE = "#d3d4da"
BUBBLE = "#ecedf1"
PAPER = "#fdfdfe"
CAPACITY_COLOR = INK
THEMED = {
    INK: "var(--ink)",
    FAINT: "var(--faint)",
    LINE: "var(--line)",
    BUBBLE: "var(--bubble)",
    PAPER: "var(--paper)",
}

ACTION_TITLES = {
    "F": "F forward",
    "B": "B backward",
    "I": "I backward for the input",
    "W": "W backward for the weights",
}
MEMORY_TITLES = {name: name for name in MEMORY_COLORS} | {"overhead": "reserve"}


def relative_luminance(color: str) -> float:
    """How light a colour is, after "Web Content Accessibility Guidelines 2".

    Args:
        color: As `#rrggbb`.

    Returns:
        0 for black, 1 for white.
    """
    channels = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def text_color_on(color: str) -> str:
    """Black or white, whichever reads better.

    Args:
        color: The background, as `#rrggbb`.

    Returns:
        `#000000` or `#ffffff`.
    """
    # Contrast with black and with white are equal at this luminance.
    return "#000000" if relative_luminance(color) > 0.179 else "#ffffff"
