"""Figures of runs. Each function makes a matplotlib figure of its own and touches nothing global."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, PercentFormatter
from torch import Tensor

from continual_crust.data.noise import Noise
from continual_crust.errors import InputError
from continual_crust.report.mosaic import FRAME, ROW_GAP, evenly, mosaic
from continual_crust.report.styles import WRONG, style_of
from continual_crust.report.tables import by_method, percent
from continual_crust.studies.result import RunResult, write_atomically

DPI = 200
LONGEST_NAME = 20
"""Characters of a class name that a figure shows."""
NUMBERED_EXPERIENCES = 12
"""Up to so many experiences there is room for numbers in the accuracy matrix, and for each on an axis."""
LEGEND_COLUMNS = 3
_INK, _FAINT = "#222222", "#777777"

Floats = npt.NDArray[np.float64]


def accuracy_over_experiences(results: Sequence[RunResult]) -> Figure:
    """Mean accuracy over the experiences seen so far, after each of them: a line and a band for each method.

    The line is the mean over seeds, the band one sample standard deviation to either side.
    """
    groups = by_method(results)
    curves = {method: np.array([_seen_so_far(run) for run in runs]) for method, runs in groups.items()}
    figure, axes = _figure(5.8, 3.6 + 0.3 * math.ceil(len(groups) / LEGEND_COLUMNS))
    lines = []
    # The legend names the best first.
    for method in sorted(curves, key=lambda method: -float(np.nan_to_num(curves[method][:, -1].mean()))):
        style, values = style_of(method), curves[method]
        x, mean = np.arange(1, values.shape[1] + 1), values.mean(axis=0)
        label = f"{style.label}  {percent(float(mean[-1]), digits=0)}"
        lines += axes.plot(x, mean, color=style.colour, marker=style.marker, label=label, clip_on=False)
        if len(values) > 1:
            spread = values.std(axis=0, ddof=1)
            axes.fill_between(x, mean - spread, mean + spread, color=style.colour, alpha=0.18, linewidth=0)
    _percent_axis(axes.yaxis, axes.set_ylim)
    axes.set_xticks([position + 1 for position in _some(len(results[0].accuracy_matrix))])
    axes.set_xlabel("experiences learned")
    axes.set_ylabel("accuracy on the experiences so far")
    legend = figure.legend(handles=lines, loc="outside lower center", ncols=LEGEND_COLUMNS, frameon=False)
    _plain(legend.get_texts())
    seeds = _seeds(groups)
    axes.set_title(f"Accuracy: mean of {seeds} ± 1 standard deviation" if seeds else "Accuracy", loc="left")
    return figure


def purity_by_method(results: Sequence[RunResult]) -> Figure:
    """Clean share of the memory: a bar for each method, a dot for each seed, a line for random choice."""
    groups = by_method(results)
    purities = {method: [run.purity for run in runs if run.purity is not None] for method, runs in groups.items()}
    purities = {method: values for method, values in purities.items() if values}
    if not purities:
        raise InputError("none of these methods keeps a memory, so there is no purity to show; add one that does.")
    figure, axes = _figure(5.8, 1.5 + 0.55 * len(purities))
    for row, (method, values) in enumerate(purities.items()):
        style = style_of(method)
        mean = sum(values) / len(values)
        axes.barh(row, mean, height=0.6, color=style.colour, alpha=0.45)
        # Dots of equal values would hide each other on one height.
        heights = row + (np.linspace(-0.18, 0.18, len(values)) if len(values) > 1 else np.zeros(1))
        axes.scatter(values, heights, color=style.colour, edgecolor="white", linewidth=0.6, s=30, zorder=3)
        axes.text(1.02, row, percent(mean, digits=0), va="center", color=_INK)
    chance = 1 - Noise.parse(results[0].noise).level
    axes.axvline(chance, color=_INK, linestyle="--", linewidth=1.2)
    axes.annotate(
        f"random choice: 1 − noise level = {percent(chance, digits=0)}",
        (chance, 1),
        xycoords=("data", "axes fraction"),
        xytext=(0, 3),
        textcoords="offset points",
        ha="right" if chance > 0.5 else "left",
        color=_INK,
    )
    axes.set_yticks(range(len(purities)), [style_of(method).label for method in purities])
    _plain(axes.get_yticklabels())
    axes.set_ylim(len(purities) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    _percent_axis(axes.xaxis, axes.set_xlim)
    axes.set_xlabel("clean share of the memory (a dot for each seed)")
    axes.set_title("How clean is the memory?", loc="left", pad=20)
    return figure


def accuracy_matrix(result: RunResult) -> Figure:
    """Accuracy on each experience after learning each; blank where an experience was still to come."""
    matrix = np.array(result.accuracy_matrix, dtype=np.float64)
    after, on = matrix.shape
    shown = np.where(_learned(matrix), matrix, np.nan)
    figure, axes = _figure(2.2 + min(5.5, 0.52 * on), 1.6 + min(5.0, 0.42 * after), grid=False)
    picture = axes.imshow(shown, cmap="cividis", vmin=0, vmax=1, aspect="auto")
    if max(after, on) <= NUMBERED_EXPERIENCES:
        for row, column in np.argwhere(~np.isnan(shown)):
            value = shown[row, column]
            axes.text(
                column,
                row,
                f"{100 * value:.0f}",
                ha="center",
                va="center",
                color="white" if value < 0.55 else "black",
            )
        groups = enumerate(result.experiences, start=1)
        names = [f"{number}: {_short(', '.join(classes))}" for number, classes in groups]
        axes.set_yticks(range(after), names[:after])
        _plain(axes.get_yticklabels())
    else:
        axes.set_yticks(_some(after), [str(row + 1) for row in _some(after)])
    axes.set_xticks(_some(on), [str(column + 1) for column in _some(on)])
    axes.set_xlabel("accuracy on experience")
    axes.set_ylabel("after learning")
    axes.set_title(f"{style_of(result.method).label}: accuracy in %", loc="left", parse_math=False)
    figure.colorbar(picture, ax=axes, format=PercentFormatter(1, decimals=0), fraction=0.05, pad=0.03)
    return figure


def contact_sheet(
    memory_images: Mapping[str, Tensor],
    is_clean: Mapping[str, Tensor],
    title: str = "",
    most_per_row: int = 40,
) -> Figure:
    """The memory itself: a row of images for each class, in the order kept, the wrong ones framed in red.

    Parameters
    ----------
    memory_images
        Bytes by class name, (n, channels, height, width), grey or RGB.
    is_clean
        By class name, whether each image is undamaged and rightly labelled.
    title
        Stands above.
    most_per_row
        Of larger memories so many images are shown, evenly chosen. Purity is always that of the whole memory.
    """
    names = list(memory_images)
    if not any(len(images) for images in memory_images.values()):
        raise InputError("this memory is empty, so there is nothing to show; choose a method that keeps samples.")
    chosen = [evenly(len(memory_images[name]), most_per_row) for name in names]
    picture = mosaic(
        [memory_images[name][at] for name, at in zip(names, chosen, strict=True)],
        [is_clean[name][at] for name, at in zip(names, chosen, strict=True)],
    )
    height, width = picture.shape[:2]
    pixels_per_inch = 240
    figure = Figure(figsize=(width / pixels_per_inch, height / pixels_per_inch), dpi=DPI)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.imshow(picture)
    axes.set_axis_off()
    pitch = (height + ROW_GAP) / len(names)
    # As large as the rows allow, because a sheet is often shown small.
    size = min(13.0, 0.75 * pitch / pixels_per_inch * 72)
    for row, name in enumerate(names):
        y, count = (row + 0.5) * pitch - ROW_GAP / 2, len(memory_images[name])
        purity = percent(float(is_clean[name].double().mean()) if count else None, digits=0)
        axes.text(
            -4.2 * size * pixels_per_inch / 72,
            y,
            _short(name),
            size=size,
            ha="right",
            va="center",
            color=_INK,
        )
        axes.text(-2 * FRAME, y, purity, size=size, ha="right", va="center", color=_INK)
        if count > most_per_row:
            axes.text(
                width + 2 * FRAME,
                y,
                f"{most_per_row} of {count} shown",
                size=0.7 * size,
                va="center",
                color=_FAINT,
            )
    total = sum(map(len, is_clean.values()))
    wrong = total - sum(int(flags.sum()) for flags in is_clean.values())
    top, bottom = -0.3 * pitch, height + 0.3 * pitch
    axes.text(-2 * FRAME, top, "clean", size=size, ha="right", va="bottom", color=_FAINT)
    if title:
        axes.text(0, top, title, size=size, va="bottom", color=_INK, weight="bold")
    axes.text(0, bottom, f"red frame = not clean: {wrong} of {total}", size=size, va="top", color=WRONG)
    _plain(axes.texts)
    return figure


def png(figure: Figure) -> bytes:
    """A figure as the bytes of a PNG file; equal figures give equal bytes."""
    buffer = io.BytesIO()
    figure.savefig(
        buffer,
        format="png",
        dpi=DPI,
        bbox_inches="tight",
        pad_inches=0.12,
        facecolor="white",
        metadata={"Software": None},
    )
    return buffer.getvalue()


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, whole or not at all."""
    write_atomically(path, png(figure))


def _seen_so_far(result: RunResult) -> Floats:
    """Mean of row i over columns 0 to i. What has no test images, and so is NaN or None, does not count."""
    matrix = np.array(result.accuracy_matrix, dtype=np.float64)
    seen = _learned(matrix) & ~np.isnan(matrix)
    count = seen.sum(axis=1)
    mean: Floats = np.where(seen, matrix, 0).sum(axis=1) / np.where(count, count, np.nan)
    return mean


def _learned(matrix: Floats) -> npt.NDArray[np.bool_]:
    """Whether experience j (column) had been learned after experience i (row)."""
    return np.tri(*matrix.shape).astype(np.bool_)


def _seeds(groups: Mapping[str, Sequence[RunResult]]) -> str:
    """How many seeds are behind each line, or nothing if only one."""
    least, most = min(map(len, groups.values())), max(map(len, groups.values()))
    if most == 1:
        return ""
    return f"{most} seeds" if least == most else f"{least} to {most} seeds"


def _figure(width: float, height: float, grid: bool = True) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    if grid:
        axes.grid(color="#e4e4e4", linewidth=0.8)
        axes.set_axisbelow(True)
    return figure, axes


def _percent_axis(axis: Axis, set_limits: Callable[[float, float], object]) -> None:
    """From 0 to 100 %, always, so that small differences look small."""
    set_limits(0, 1)
    axis.set_major_locator(FixedLocator([0, 0.2, 0.4, 0.6, 0.8, 1]))
    axis.set_major_formatter(PercentFormatter(1, decimals=0))


def _some(count: int) -> range:
    """Positions of as many experiences as an axis has room to number."""
    return range(0, count, math.ceil(count / NUMBERED_EXPERIENCES))


def _plain(texts: Iterable[Text]) -> None:
    """Show names as they are: a dollar sign in one would otherwise start a formula."""
    for text in texts:
        text.set_parse_math(False)


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
