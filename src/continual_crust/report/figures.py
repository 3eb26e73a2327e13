"""Figures of runs and of data sets. Each function makes a matplotlib figure of its own and touches nothing global."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from torch import Tensor

from continual_crust.data import Dataset, Noise
from continual_crust.errors import InputError
from continual_crust.report.curves import learned, matrix_of, seen_so_far
from continual_crust.report.drawing import (
    DPI,
    FAINT,
    INK,
    NUMBERED_EXPERIENCES,
    new_figure,
    percent_axis,
    plain,
    save_png,
    short,
    some_of,
)
from continual_crust.report.mosaic import FRAME, ROW_GAP, mosaic
from continual_crust.report.styles import WRONG, style_of
from continual_crust.report.tables import by_method, percent
from continual_crust.studies.memory import evenly, memory_by_class
from continual_crust.studies.result import RunResult
from continual_crust.studies.run import FinishedRun

LEGEND_COLUMNS = 3
PER_ROW = 25
"""Images of a class that fit side by side on a page."""
SAMPLES_PER_CLASS = 12
"""Images of each class on a sheet of samples."""


def accuracy_over_experiences(results: Sequence[RunResult]) -> Figure:
    """Mean accuracy over the experiences seen so far, after each of them: a line and a band for each method.

    The line is the mean over seeds, the band one sample standard deviation to either side.
    """
    groups = by_method(results)
    curves = {method: np.array([seen_so_far(run) for run in runs]) for method, runs in groups.items()}
    experiences = len(results[0].accuracy_matrix[0])
    figure, axes = new_figure(5.8, 3.6 + 0.3 * math.ceil(len(groups) / LEGEND_COLUMNS))
    lines = []
    # The legend names the best first.
    for method in sorted(curves, key=lambda method: -float(np.nan_to_num(curves[method][:, -1].mean()))):
        style, values = style_of(method), curves[method]
        # Joint training has a single point: after everything.
        x, mean = np.arange(experiences - values.shape[1], experiences) + 1, values.mean(axis=0)
        label = f"{style.label}  {percent(float(mean[-1]), digits=0)}"
        lines += axes.plot(x, mean, color=style.colour, marker=style.marker, label=label, clip_on=False)
        if len(values) > 1:
            spread = values.std(axis=0, ddof=1)
            axes.fill_between(x, mean - spread, mean + spread, color=style.colour, alpha=0.18, linewidth=0)
    percent_axis(axes.yaxis, axes.set_ylim)
    axes.set_xticks([position + 1 for position in some_of(experiences)])
    axes.set_xlabel("experiences learned")
    axes.set_ylabel("accuracy on the experiences so far")
    legend = figure.legend(handles=lines, loc="outside lower center", ncols=LEGEND_COLUMNS, frameon=False)
    plain(legend.get_texts())
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
    figure, axes = new_figure(5.8, 1.5 + 0.55 * len(purities))
    for row, (method, values) in enumerate(purities.items()):
        style = style_of(method)
        mean = sum(values) / len(values)
        axes.barh(row, mean, height=0.6, color=style.colour, alpha=0.45)
        # Dots of equal values would hide each other on one height.
        heights = row + (np.linspace(-0.18, 0.18, len(values)) if len(values) > 1 else np.zeros(1))
        axes.scatter(values, heights, color=style.colour, edgecolor="white", linewidth=0.6, s=30, zorder=3)
        axes.text(1.02, row, percent(mean, digits=0), va="center", color=INK)
    chance = 1 - Noise.parse(results[0].noise).level
    axes.axvline(chance, color=INK, linestyle="--", linewidth=1.2)
    axes.annotate(
        f"random choice: 1 − noise level = {percent(chance, digits=0)}",
        (chance, 1),
        xycoords=("data", "axes fraction"),
        xytext=(0, 3),
        textcoords="offset points",
        ha="right" if chance > 0.5 else "left",
        color=INK,
    )
    axes.set_yticks(range(len(purities)), [style_of(method).label for method in purities])
    plain(axes.get_yticklabels())
    axes.set_ylim(len(purities) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    percent_axis(axes.xaxis, axes.set_xlim)
    axes.set_xlabel("clean share of the memory (a dot for each seed)")
    axes.set_title("How clean is the memory?", loc="left", pad=20)
    return figure


def accuracy_matrix(result: RunResult) -> Figure:
    """Accuracy on each experience after learning each; blank where an experience was still to come."""
    matrix = matrix_of(result)
    after, on = matrix.shape
    shown = np.where(learned(matrix), matrix, np.nan)
    # Beside a single experience there must still be room for its classes' names and the title.
    figure, axes = new_figure(2.2 + min(5.5, 0.52 * max(on, 4)), 1.6 + min(5.0, 0.42 * max(after, 2)), grid=False)
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
        names = [f"{number}: {short(', '.join(classes))}" for number, classes in groups]
        axes.set_yticks(range(after), names[:after])
        plain(axes.get_yticklabels())
    else:
        axes.set_yticks(some_of(after), [str(row + 1) for row in some_of(after)])
    axes.set_xticks(some_of(on), [str(column + 1) for column in some_of(on)])
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
    counts: Mapping[str, tuple[int, int]] | None = None,
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
    counts
        By class name how many images the whole memory has and how many of them are clean, where those given are
        only some of them.
    """
    names = list(memory_images)
    if not any(len(images) for images in memory_images.values()):
        raise InputError("this memory is empty, so there is nothing to show; choose a method that keeps samples.")
    if counts is None:
        counts = {name: (len(flags), int(flags.sum())) for name, flags in is_clean.items()}
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
        y, (count, clean), shown = (row + 0.5) * pitch - ROW_GAP / 2, counts[name], len(chosen[row])
        purity = percent(clean / count if count else None, digits=0)
        axes.text(
            -4.2 * size * pixels_per_inch / 72,
            y,
            short(name),
            size=size,
            ha="right",
            va="center",
            color=INK,
        )
        axes.text(-2 * FRAME, y, purity, size=size, ha="right", va="center", color=INK)
        if count > shown:
            axes.text(
                width + 2 * FRAME,
                y,
                f"{shown} of {count} shown",
                size=0.7 * size,
                va="center",
                color=FAINT,
            )
    total = sum(count for count, _ in counts.values())
    wrong = total - sum(clean for _, clean in counts.values())
    top, bottom = -0.3 * pitch, height + 0.3 * pitch
    axes.text(-2 * FRAME, top, "clean", size=size, ha="right", va="bottom", color=FAINT)
    if title:
        axes.text(0, top, title, size=size, va="bottom", color=INK, weight="bold")
    axes.text(0, bottom, f"red frame = not clean: {wrong} of {total}", size=size, va="top", color=WRONG)
    plain(axes.texts)
    return figure


def sample_sheet(dataset: Dataset) -> Figure:
    """A row of training images for each class, evenly chosen from the whole set."""
    rows = []
    for label in range(dataset.classes):
        own = (dataset.train_labels == label).nonzero().flatten()
        rows.append(dataset.train_images[own[evenly(len(own), SAMPLES_PER_CLASS)]])
    picture = mosaic(rows, [torch.ones(len(row), dtype=torch.bool, device=row.device) for row in rows])
    height, width = picture.shape[:2]
    figure = Figure(figsize=(7.5, 6 * height / width + 0.5))
    axes = figure.add_axes((0.2, 0.02, 0.79, 0.9))
    axes.imshow(picture)
    axes.set_xticks([])
    pitch = (height + ROW_GAP) / dataset.classes
    middles = [pitch * row + (pitch - ROW_GAP) / 2 for row in range(dataset.classes)]
    axes.set_yticks(middles, dataset.class_names, parse_math=False)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    channels, rows_of_pixels, columns = dataset.image_shape
    kind = "grey" if channels == 1 else "colour"
    figure.suptitle(f"{dataset.name}: {columns}×{rows_of_pixels} pixels, {kind}", x=0.2, ha="left", size=11)
    return figure


def write_run_figures(finished: FinishedRun, folder: Path) -> list[Path]:
    """Write ``accuracy.png``, ``accuracy_matrix.png`` and, if anything is remembered, ``memory.png``.

    Returns
    -------
    The files written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    result = finished.result
    figures = {
        "accuracy.png": accuracy_over_experiences([result]),
        "accuracy_matrix.png": accuracy_matrix(result),
    }
    images, is_clean = memory_by_class(finished)
    if images:
        title = f"What {style_of(result.method).label} remembers, {result.dataset} with noise {result.noise}"
        figures["memory.png"] = contact_sheet(images, is_clean, title)
    else:
        # Of an earlier run in this folder, perhaps; it would pass for this one's.
        (folder / "memory.png").unlink(missing_ok=True)
    for name, figure in figures.items():
        save_png(figure, folder / name)
    return [folder / name for name in figures]


def _seeds(groups: Mapping[str, Sequence[RunResult]]) -> str:
    """How many seeds are behind each line, or nothing if only one."""
    least, most = min(map(len, groups.values())), max(map(len, groups.values()))
    if most == 1:
        return ""
    return f"{most} seeds" if least == most else f"{least} to {most} seeds"
