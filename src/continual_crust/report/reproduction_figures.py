"""What the tables of a reproduction say, at a glance."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from continual_crust.data.noise import Noise, NoiseKind
from continual_crust.report.cells import ACCURACY
from continual_crust.report.drawing import FAINT, INK, new_figure, percent_axis, save_png
from continual_crust.report.evidence import Evidence, Place
from continual_crust.report.generated_tables import evidence_of
from continual_crust.report.moved import all_moved
from continual_crust.report.paper_comparison import (
    AS_RELEASED,
    DATASET_NAMES,
    NAMES,
    OUR_SEEDS,
    OURS,
    SEEDS,
    TABLES,
    counted,
)
from continual_crust.report.styles import style_of
from continual_crust.studies.collected import Collected
from continual_crust.studies.defaults import defaults_for
from continual_crust.studies.paper import paper_table

LEVELS = tuple(tenth / 10 for tenth in range(9))
NOISE_METHODS = {"sift": "Sift", "crust": AS_RELEASED, "cosine_crust": "CosineCRUST", "replay": "Replay"}
"""Whose accuracy is drawn against noise, and how tables call them."""
MARKERS = {"mnist": "o", "fashionmnist": "s", "cifar10": "^", "mstar": "D"}


def write_figures(folder: Path, collected: Path) -> list[Path]:
    """Draw all figures of a folder of collected results into another; returns the files."""
    evidence = evidence_of(Collected.read(collected))
    figures: dict[str, Callable[[Evidence], Figure]] = {
        "reproduction_noise.png": accuracy_against_noise,
        "reproduction_paper.png": ours_against_the_papers,
    }
    for name, draw in figures.items():
        save_png(draw(evidence), folder / name)
    return [folder / name for name in figures]


def accuracy_against_noise(evidence: Evidence, dataset: str = "mnist") -> Figure:
    """How much each method still knows at the end, the more labels are flipped; dashed, the paper's numbers."""
    figure, axes = new_figure(6.4, 4.0)
    memory = defaults_for(dataset, NoiseKind.LABEL).training.memory_per_class
    table = paper_table(f"{dataset}_label_{memory}")
    for method, name in NOISE_METHODS.items():
        style = style_of(method)
        means = {}
        for level in LEVELS:
            place = Place(dataset, Noise(NoiseKind.LABEL, level), memory)
            # Sift is not shown from seeds that tuned it; beyond the paper's levels the others lack the paper's seeds.
            cells = (
                evidence.cell(name, place, seeds) for seeds in ((OUR_SEEDS,) if name in OURS else (SEEDS, OUR_SEEDS))
            )
            means[level] = next((cell.mean(ACCURACY) for cell in cells if cell.results), math.nan)
        axes.plot(list(means), list(means.values()), color=style.colour, marker=style.marker, label=style.label)
        paper = {level: table.value(method, level, "accuracy", dataset) for level in LEVELS}
        theirs = [math.nan if found is None else found[0] for found in paper.values()]
        axes.plot(list(paper), theirs, color=style.colour, linestyle=(0, (4, 2)), linewidth=1)
    axes.plot([], [], color=FAINT, linestyle=(0, (4, 2)), linewidth=1, label="the paper's numbers")
    percent_axis(axes.xaxis, axes.set_xlim)
    axes.set_xlim(-0.02, 0.82)
    percent_axis(axes.yaxis, axes.set_ylim)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("labels flipped to any other class")
    axes.set_ylabel(f"accuracy on {DATASET_NAMES[dataset]} in the end")
    axes.legend(frameon=False, loc="lower left")
    return figure


def ours_against_the_papers(evidence: Evidence) -> Figure:
    """Every accuracy that the paper prints and that was run, ours above theirs; on the line they are the same.

    Hollow, and joined to the same without it, what comes of images that are moved and mirrored; with a dot inside where
    phase 1 has all data of old classes besides.
    """
    figure, axes = new_figure(5.6, 5.2)
    found = {
        (cell.method, cell.place): (cell.paper[0], mean)
        for table in map(paper_table, TABLES)
        for cell in counted(table, evidence)
        if cell.measure is ACCURACY and cell.paper is not None and not math.isnan(mean := cell.ours.mean(ACCURACY))
    }
    theirs_of = paper_table(TABLES[0]).methods
    methods = {name: method for method in theirs_of for name in (style_of(method).label, NAMES.get(method, ""))}
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1, zorder=1)
    for (name, place), (theirs, ours) in found.items():
        colour = style_of(methods[name]).colour
        axes.plot(theirs, ours, MARKERS[place.dataset], color=colour, markersize=5, alpha=0.75, markeredgewidth=0)
    for one in all_moved(evidence):
        came, moved = (comparison.ours.mean(ACCURACY) for comparison in one.accuracies)
        theirs_here = one.accuracies[1].paper
        if theirs_here is None or math.isnan(moved):
            continue
        colour, at = style_of(one.method).colour, theirs_here[0]
        axes.plot([at, at], [came, moved], color=colour, linewidth=0.8, zorder=1)
        marker = MARKERS[one.place.dataset]
        axes.plot(at, moved, marker, color="white", markeredgecolor=colour, markersize=5, zorder=3)
        if one.has_all_data:
            axes.plot(at, moved, ".", color=colour, markersize=2.5, zorder=4)
    shown = map(style_of, dict.fromkeys(methods[name] for name, _ in found))
    colours = [Line2D([], [], marker="o", color=style.colour, linestyle="", label=style.label) for style in shown]
    shapes = [
        Line2D([], [], marker=marker, color=INK, linestyle="", label=DATASET_NAMES[dataset])
        for dataset, marker in MARKERS.items()
    ]
    hollow = Line2D([], [], marker="o", color=INK, markerfacecolor="white", linewidth=0.8, label="moved, mirrored")
    dotted = Line2D([], [], marker=r"$\odot$", color=INK, linestyle="", label="and all old data")
    method, images = (Line2D([], [], linestyle="", label=heading) for heading in ("Method", "\nImages"))
    percent_axis(axes.xaxis, axes.set_xlim)
    percent_axis(axes.yaxis, axes.set_ylim)
    axes.set_aspect("equal")
    axes.set_xlabel("accuracy in the paper")
    axes.set_ylabel("accuracy here")
    handles = [method, *colours, images, *shapes, hollow, dotted]
    axes.legend(handles=handles, frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1.02))
    return figure
