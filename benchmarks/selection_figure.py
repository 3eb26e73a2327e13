"""Draws how the cost of selection grows, from what ``selection_cpu.py`` measured.

python benchmarks/selection_figure.py
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from continual_crust.report.drawing import DPI, FAINT, INK, png
from continual_crust.writing import write_atomically

BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"


UNITS = {"s": "seconds", "cpu_s": "processor seconds"}


def growth_figure(growth: dict[str, list[dict[str, Any]]], unit: str) -> Figure:
    """Cost against n, k and d, on logarithmic scales."""
    growth = {name: [{**row, "cost": row[f"ours_{unit}"]} for row in rows] for name, rows in growth.items()}
    figure = Figure(figsize=(11, 3.6), dpi=DPI, layout="constrained")
    points, budget, dimensions = figure.subplots(1, 3, sharey=True)
    _curve(points, growth["facility_location_n"], "n", BLUE, "facility location, k = 300")
    _curve(points, growth["centrality_n"], "n", ORANGE, "centrality")
    _curve(points, growth["spectral_n"], "n", GREEN, "spectral clusters")
    _slope(points, growth["centrality_n"][2:], "n", 2, "n²")
    _slope(points, growth["spectral_n"], "n", 1, "n")
    points.set_xlabel("points n (d = 128)")
    points.set_ylabel(UNITS[unit])
    points.legend(frameon=False, fontsize=8, loc="upper left")
    _curve(budget, growth["facility_location_k"], "k", BLUE, "")
    budget.set_xlabel("budget k (n = 6,000, d = 128)")
    _curve(dimensions, growth["facility_location_d"], "d", BLUE, "")
    dimensions.set_xlabel("dimensions d (n = 6,000, k = 300)")
    return figure


def peers_figure(rows: list[dict[str, Any]], unit: str) -> Figure:
    """Ours and the peers at n = 6,000, k = 300."""
    figure = Figure(figsize=(8.5, 3.4), dpi=DPI, layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    bars = [
        (f"apricot_{unit}", "apricot, lazy", FAINT),
        (f"submodlib_{unit}", "submodlib, lazy", "#bbbbbb"),
        (f"ours_{unit}", "ours", BLUE),
        (f"limit_{unit}", "limit: products, and bytes read and written", ORANGE),
    ]
    for panel, kind in zip(axes, ("spread", "collapsed"), strict=True):
        chosen = [row for row in rows if row["kind"] == kind]
        for place, (name, label, colour) in enumerate(bars):
            positions = [index + 0.2 * (place - 1.5) for index in range(len(chosen))]
            panel.bar(positions, [row[name] for row in chosen], width=0.18, color=colour, label=label)
        panel.set_xticks(range(len(chosen)), [_name(row) for row in chosen])
        panel.set_yscale("log")
        panel.set_title("well spread" if kind == "spread" else "95 % within 1e-4", fontsize=10, color=INK)
        panel.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel(UNITS[unit])
    figure.legend(*axes[0].get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside lower center", ncols=4)
    return figure


def _name(row: dict[str, Any]) -> str:
    return "gradients,\n10 x 128" if row["factored"] else f"d = {row['d']}"


def _curve(axes: Axes, rows: list[dict[str, Any]], name: str, colour: str, label: str) -> None:
    axes.loglog([row[name] for row in rows], [row["cost"] for row in rows], "o-", color=colour, label=label)
    axes.grid(color="#e4e4e4", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)


def _slope(axes: Axes, rows: list[dict[str, Any]], name: str, power: int, label: str) -> None:
    """A dashed line that grows with a power of n, a little below a curve, for the eye to compare."""
    first, last = rows[0], rows[-1]
    start = 0.5 * first["cost"]
    end = start * (last[name] / first[name]) ** power
    axes.loglog([first[name], last[name]], [start, end], "--", color=FAINT, linewidth=1)
    axes.annotate(label, (last[name], end), color=FAINT, fontsize=8, xytext=(3, -3), textcoords="offset points")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results/selection_cpu.json"))
    parser.add_argument("--folder", type=Path, default=Path("docs"))
    arguments = parser.parse_args()
    results = json.loads(arguments.results.read_text(encoding="utf-8"))
    # On a clock two threads show what they are good for; one thread is what one measures with where others work too.
    unit = "cpu_s" if results["machine"]["threads"] == 1 else "s"
    figures = {
        "growth": growth_figure(results["growth"], unit),
        "peers": peers_figure(results["facility_location"], unit),
    }
    for name, figure in figures.items():
        write_atomically(arguments.folder / f"performance_{name}.png", png(figure))


if __name__ == "__main__":
    main()
