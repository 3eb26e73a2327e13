"""What all figures have in common."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, PercentFormatter

from continual_crust.writing import write_atomically

DPI = 200
LONGEST_NAME = 20
"""Characters of a class name that a figure shows."""
NUMBERED_EXPERIENCES = 12
"""Up to so many experiences there is room for numbers in the accuracy matrix, and for each on an axis."""
INK, FAINT = "#222222", "#777777"

Floats = npt.NDArray[np.float64]


def new_figure(width: float, height: float, grid: bool = True) -> tuple[Figure, Axes]:
    """A figure of its own, in inches, that pyplot does not know of."""
    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    plain_axes(axes, grid)
    return figure, axes


def plain_axes(axes: Axes, grid: bool = True) -> None:
    """Two sides of a frame, and faint lines behind what is drawn."""
    axes.spines[["top", "right"]].set_visible(False)
    if grid:
        axes.grid(color="#e4e4e4", linewidth=0.8)
        axes.set_axisbelow(True)


def percent_axis(axis: Axis, set_limits: Callable[[float, float], object], low: float = 0.0) -> None:
    """From 0 to 100 %, always, so that small differences look small; from `low` where numbers can be negative."""
    start = -0.2 * math.ceil(-low / 0.2) if low < -0.02 else 0.0
    set_limits(start, 1)
    axis.set_major_locator(FixedLocator([step / 5 for step in range(round(start / 0.2), 6)]))
    axis.set_major_formatter(PercentFormatter(1, decimals=0))


def some_of(count: int) -> range:
    """Positions of as many experiences as an axis has room to number."""
    return range(0, count, math.ceil(count / NUMBERED_EXPERIENCES))


def plain(texts: Iterable[Text]) -> None:
    """Show names as they are: a dollar sign in one would otherwise start a formula."""
    for text in texts:
        text.set_parse_math(False)


def short(name: str) -> str:
    """A name that fits beside a figure."""
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def png(figure: Figure) -> bytes:
    """A figure as the bytes of a PNG file; equal figures give equal bytes."""
    return _saved(figure, "png", {"Software": None})


def save_png(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, whole or not at all."""
    write_atomically(path, png(figure))


def svg(figure: Figure) -> bytes:
    """A figure as the bytes of an SVG file; equal figures give equal bytes."""
    # Letters become paths, so that no font need be there; ids are drawn from the salt instead of at random.
    with mpl.rc_context({"svg.hashsalt": "continual-crust", "svg.fonttype": "path"}):
        return _saved(figure, "svg", {"Date": None, "Creator": None})


def _saved(figure: Figure, form: str, metadata: dict[str, None]) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # Of letters no font here has, boxes are drawn; who reads the figure sees them.
        warnings.filterwarnings("ignore", r"Glyph .* missing from font")
        figure.savefig(
            buffer, format=form, dpi=DPI, bbox_inches="tight", pad_inches=0.12, facecolor="white", metadata=metadata
        )
    return buffer.getvalue()
