"""Accuracy matrices as coloured tables that can be stepped through, experience by experience."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import matplotlib as mpl
import numpy as np

from continual_crust.errors import first_few
from continual_crust.report.curves import forgotten_so_far, learned, matrix_of, mean_over_runs, seen_so_far
from continual_crust.report.drawing import Floats, short
from continual_crust.report.tables import decimal
from continual_crust.studies.result import RunResult

STEPS = 20
"""Shades between 0 and 100 %."""

SCRIPT = """
"use strict";
for (const viewer of document.querySelectorAll(".viewer")) {
  const choice = viewer.querySelector("select"), slider = viewer.querySelector("input");
  const said = viewer.querySelector("output"), panels = [...viewer.querySelectorAll(".panel")];
  const rows = () => [...panels[choice.selectedIndex].querySelectorAll("tbody tr")];
  const show = () => {
    panels.forEach((panel, at) => { panel.hidden = at !== choice.selectedIndex; });
    const now = rows();
    const step = Number(slider.value);
    now.forEach((row, at) => {
      row.classList.toggle("later", at >= step);
      row.classList.toggle("now", at === step - 1);
    });
    said.textContent = now[step - 1].dataset.said;
    slider.setAttribute("aria-valuetext", said.textContent);
  };
  const move = (by) => {
    slider.value = String(Number(slider.value) + by);
    show();
  };
  viewer.querySelector(".back").addEventListener("click", () => move(-1));
  viewer.querySelector(".on").addEventListener("click", () => move(1));
  slider.addEventListener("input", show);
  choice.addEventListener("change", () => {
    const atEnd = slider.value === slider.max;
    slider.max = String(rows().length);
    if (atEnd) slider.value = slider.max;
    show();
  });
  viewer.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, Home: -1000, End: 1000 }[event.key];
    if (by === undefined || event.target === slider || event.target === choice) return;
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    move(by);
  });
  viewer.querySelector(".controls").hidden = false;
  slider.max = String(rows().length);
  slider.value = slider.max;
  show();
}
"""


@dataclass(frozen=True)
class Matrix:
    """What one panel shows."""

    label: str
    results: Sequence[RunResult]
    """Seeds of one cell; their mean is shown."""


def shades() -> str:
    """A style for each shade, with ink that can be read on it."""
    colours = mpl.colormaps["cividis"](np.linspace(0, 1, STEPS + 1))
    return "\n".join(
        f".v{step} {{ background: {mpl.colors.to_hex(colour)}; color: {'#000' if step >= 0.5 * STEPS else '#fff'}; }}"
        for step, colour in enumerate(colours)
    )


def viewer(matrices: Sequence[Matrix], name: str, chosen: int = 0) -> str:
    """HTML with a panel for each matrix, one shown at first. Without scripts all panels are there, and complete."""
    options = "".join(
        f"<option{' selected' if at == chosen else ''}>{escape(matrix.label)}</option>"
        for at, matrix in enumerate(matrices)
    )
    panels = "".join(map(_panel, matrices))
    longest = max(len(matrix.results[0].accuracy_matrix) for matrix in matrices)
    return f"""<div class="viewer card" role="group" aria-label="Accuracy matrix">
<div class="controls" hidden>
<label>Show <select id="{name}-choice">{options}</select></label>
<span class="steps"><button type="button" class="back" aria-label="One experience back">◀</button>
<input type="range" min="1" max="{longest}" value="{longest}" id="{name}-step" aria-label="After experience">
<button type="button" class="on" aria-label="One experience on">▶</button></span>
<output for="{name}-choice {name}-step" aria-live="polite"></output>
</div>
{panels}</div>
"""


def _panel(matrix: Matrix) -> str:
    shape = matrix_of(matrix.results[0]).shape
    results = [result for result in matrix.results if matrix_of(result).shape == shape]
    mean = mean_over_runs(np.array([matrix_of(result) for result in results]))
    seen = mean_over_runs(np.array([seen_so_far(result) for result in results]))
    forgotten = mean_over_runs(np.array([forgotten_so_far(result) for result in results]))
    after, on = shape
    known = learned(mean)
    head = "".join(f'<th scope="col">{column + 1}</th>' for column in range(on))
    rows = []
    for row in range(after):
        name = _name(results, row) if after == on else "everything"
        told = _said(name, row, after, seen, forgotten)
        cells = "".join(_cell(mean[row, column]) if known[row, column] else "<td></td>" for column in range(on))
        rows.append(f'<tr data-said="{escape(told)}"><th scope="row">{escape(name)}</th>{cells}</tr>\n')
    seeds = f"mean of {len(results)} seeds" if len(results) > 1 else f"seed {results[0].seed}"
    return f"""<div class="panel scroll" tabindex="0" role="region" aria-label="{escape(matrix.label)}">
<table class="matrix"><caption>{escape(matrix.label)}, {seeds}: accuracy in % on experience …</caption>
<thead><tr><th scope="col">after learning</th>{head}</tr></thead>
<tbody>
{"".join(rows)}</tbody></table></div>
"""


def _name(results: Sequence[RunResult], row: int) -> str:
    """The experience's number, with its classes where there is one order of classes."""
    orders = {str(result.experiences) for result in results}
    if len(orders) > 1 or row >= len(results[0].experiences):
        return str(row + 1)
    return f"{row + 1}: {first_few([short(str(name)) for name in results[0].experiences[row]], 4)}"


def _said(name: str, row: int, after: int, seen: Floats, forgotten: Floats) -> str:
    classes = name.partition(": ")[2]
    where = f"experience {row + 1} of {after}" + (f" ({classes})" if classes else "") if after > 1 else name
    told = f"After {where}: accuracy so far {_percent(seen[row])}"
    return told if math.isnan(forgotten[row]) else f"{told}, lost so far {_percent(forgotten[row])}"


def _percent(share: float) -> str:
    return "unknown" if math.isnan(share) else f"{decimal(100 * share, 1)} %"


def _cell(value: float) -> str:
    if math.isnan(value):
        return "<td>–</td>"
    return f'<td class="v{round(STEPS * min(1.0, max(0.0, value)))}">{100 * value:.0f}</td>'
