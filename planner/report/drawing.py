"""What all figures share: size, type, axes, and how one becomes a file.

Figures are made twice from the same drawing functions, wide for a screen or
paper and narrow for a phone, so that text keeps its size on both.
"""

import io
import math
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from planner.report.colors import FAINT, INK, LINE, PAPER, THEMED

WIDE_IN = 9.0
NARROW_IN = 4.2
_FONT_PT = 9.0
_PNG_DPI = 160
_FONT = "DejaVu Sans"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One figure that has not been drawn yet.

    Attributes:
        name: Of its files, such as `timeline`.
        finding: What it shows, in one sentence.
        height_in: Of the wide figure [inch].
        draw: Puts the ink into an empty figure.
    """

    name: str
    finding: str
    height_in: float
    draw: Callable[[Figure], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedPicture:
    """One figure as files hold it.

    Attributes:
        name: Of its files.
        finding: What it shows, in one sentence.
        png: The wide figure on white.
        wide_svg: An `<svg>` element in the page's own colours.
        narrow_svg: The same for a phone.
    """

    name: str
    finding: str
    png: bytes
    wide_svg: str
    narrow_svg: str


def render(picture: Picture) -> RenderedPicture:
    """Draw one figure in all its forms.

    Args:
        picture: What to draw.

    Returns:
        The same bytes for the same picture, each time.
    """
    with _typography():
        wide = _drawn(picture, WIDE_IN, picture.height_in)
        narrow = _drawn(picture, NARROW_IN, picture.height_in + 0.6)
        return RenderedPicture(
            name=picture.name,
            finding=picture.finding,
            png=_png(wide),
            wide_svg=_svg(wide, f"{picture.name}-wide"),
            narrow_svg=_svg(narrow, f"{picture.name}-narrow"),
        )


def set_finding(axes: Axes, finding: str) -> None:
    """Title a figure with what it shows, wrapped to its width.

    Args:
        axes: Where it is drawn.
        finding: One sentence.
    """
    # A bold letter is about 0.6 of its size wide; tick labels take the rest.
    num_letters = int(axis_width_pt(axes) / (0.6 * (_FONT_PT + 1)))
    axes.set_title(
        textwrap.fill(finding, num_letters),
        loc="left",
        fontsize=_FONT_PT + 1,
        fontweight="bold",
        color=INK,
    )


def axis_width_pt(axes: Axes) -> float:
    """About how wide the axes will be, known before the layout is.

    Args:
        axes: Of a figure with one column.

    Returns:
        The width [points].
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    return float(figure.get_figwidth()) * 72 - 85


def is_wide(axes: Axes) -> bool:
    """Whether a figure is for a screen or paper, not for a phone.

    Args:
        axes: Of a figure with one column.

    Returns:
        True from about the middle of both widths on.
    """
    return axis_width_pt(axes) > 400


def plain_axes(axes: Axes, *, grid: str) -> None:
    """Only the ink that is needed: faint grid lines, no box.

    Args:
        axes: Where it is drawn.
        grid: Along which axis values are read: `x` or `y`.
    """
    axes.set_facecolor("none")
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.tick_params(length=0, colors=INK)
    axes.grid(axis="x" if grid == "x" else "y", color=LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.xaxis.label.set_color(FAINT)
    axes.yaxis.label.set_color(FAINT)


def legend_below(axes: Axes, handles: Sequence[Artist]) -> None:
    """Put the legend under the axis label, in as few rows as there is room for.

    Args:
        axes: Where it is drawn.
        handles: Labelled artists, drawn or made for the legend alone.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    below = ScaledTranslation(0, -34 / 72, figure.dpi_scale_trans)
    widths_pt = [0.56 * _FONT_PT * len(str(h.get_label())) + 34 for h in handles]
    num_rows = 1  # filled column by column, each as wide as its longest entry
    while num_rows < len(handles) and axis_width_pt(axes) < sum(
        max(widths_pt[first : first + num_rows])
        for first in range(0, len(handles), num_rows)
    ):
        num_rows += 1
    axes.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0.0, 0.0),
        bbox_transform=axes.transAxes + below,
        ncols=math.ceil(len(handles) / num_rows),
        frameon=False,
        borderaxespad=0.0,
        handlelength=1.4,
        handletextpad=0.5,
        columnspacing=1.4,
        labelcolor=INK,
    )


@contextmanager
def _typography() -> Iterator[None]:
    settings: Any = {  # matplotlib wants literal keys, not a dict of text
        "font.size": _FONT_PT,
        "font.family": _FONT,
        "svg.fonttype": "none",  # text stays text: small, searchable, selectable
        "svg.hashsalt": "planner",
        "hatch.linewidth": 0.7,
    }
    with matplotlib.rc_context(settings):
        yield


def _drawn(picture: Picture, width_in: float, height_in: float) -> Figure:
    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    picture.draw(figure)
    figure.draw_without_rendering()
    figure.set_layout_engine(None)  # or every file would be laid out anew
    return figure


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(
        buffer,
        format="png",
        dpi=_PNG_DPI,
        facecolor=PAPER,
        metadata={"Software": None},
    )
    return buffer.getvalue()


def _svg(figure: Figure, prefix: str) -> str:
    """The `<svg>` element, its ids unlike any other figure's of the page."""
    buffer = io.StringIO()
    figure.savefig(
        buffer,
        format="svg",
        dpi=_PNG_DPI,  # of what is too much to be drawn as vectors
        transparent=True,
        metadata={"Date": None, "Creator": None},
    )
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = re.sub(r'(href="|url\()#', rf"\g<1>#{prefix}-", text)
    text = text.replace(f"'{_FONT}'", f"'{_FONT}', Verdana, sans-serif")
    for color, variable in THEMED.items():
        text = text.replace(color, variable)
    return text
