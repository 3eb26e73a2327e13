"""The picture of the two theorems: what noise does to the Jacobian's error and to the iterations."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter, StrMethodFormatter

from continual_crust.report.drawing import DPI, plain_axes

# Blue squares and orange circles: told apart without colour, and neither is the red of wrong labels in other figures.
_KINDS = {
    "label": ("flipped labels", "#0072b2", "s"),
    "salt_and_pepper": ("perturbed images", "#e69f00", "o"),
}
_PANELS = (
    ("relative_epsilon", "ε measured: how much the coreset misses", "share of ‖J‖", "linear"),
    ("allowed_relative_epsilon", "ε allowed by the theorems (corrected)", "share of ‖J‖", "log"),
    ("iterations_corrected", "iterations bound: until the coreset is fitted", "steps of gradient descent", "log"),
)


def theory_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """ε as measured, ε as allowed and the iterations bound, against the share of flipped or perturbed images.

    A point is a seed's median over classes, a line the median over seeds. The runs without noise begin both lines
    where both have a value.

    Parameters
    ----------
    rows
        As :func:`continual_crust.report.theory_sweep.sweep` writes them.
    """
    figure = Figure(figsize=(11, 3.9), dpi=DPI, layout="constrained")
    for position, (name, title, unit, scale) in enumerate(_PANELS):
        axes = figure.add_subplot(1, len(_PANELS), position + 1)
        plain_axes(axes)
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_xlabel("share of the training images that are noisy")
        axes.set_ylabel(unit)
        axes.set_yscale(scale)
        for kind, (label, colour, marker) in _KINDS.items():
            # Without noise the theorems allow by Theorem 1; what Theorem 2 allows goes to zero with the noise.
            shared = () if (kind, name) == ("salt_and_pepper", "allowed_relative_epsilon") else ("none",)
            chosen = [row for row in rows if row["noise"] in (kind, *shared)]
            _line(axes, chosen, name, label=label, color=colour, marker=marker)
        if name == "iterations_corrected":
            chosen = [row for row in rows if row["noise"] == "label"]
            _line(
                axes, chosen, "iterations_stated", "flipped labels, Theorem 1 as stated", "#0072b2", "x", linestyle="--"
            )
            # All within a decade: powers of ten alone would leave one tick or none.
            for place in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
                place(StrMethodFormatter("{x:,.0f}"))
        if scale == "linear":
            axes.set_ylim(bottom=0)
        axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    handles, labels = figure.axes[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return figure


def _line(
    axes: Axes,
    rows: Sequence[Mapping[str, Any]],
    name: str,
    label: str,
    color: str,
    marker: str,
    linestyle: str = "-",
) -> None:
    """A line through the medians over seeds, with the seeds as faint points. What has no value leaves a gap."""
    levels = sorted({row["level"] for row in rows})
    values = {level: [row[name] for row in rows if row["level"] == level and row[name] is not None] for level in levels}
    points = [(level, value) for level in levels for value in values[level]]
    medians = [statistics.median(values[level]) if values[level] else float("nan") for level in levels]
    axes.plot(levels, medians, color=color, marker=marker, linestyle=linestyle, label=label, markersize=5)
    if points:
        axes.scatter(
            [point[0] for point in points],
            [point[1] for point in points],
            color=color,
            marker=marker,
            s=12,
            alpha=0.35,
            linewidth=0.8,
        )
