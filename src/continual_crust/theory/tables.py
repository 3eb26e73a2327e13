"""What the sweep over levels of noise found, as tables of text for a terminal or a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from continual_crust.theory.learner import median
from continual_crust.theory.theorems import Status

_MEASURED = {
    "accuracy": "accuracy",
    "ρ kept": "noise_in_coreset",
    "ε / ‖J‖": "relative_epsilon",
    "ε allowed / ‖J‖": "allowed_relative_epsilon",
    "α": "alpha",
    "β": "beta",
    "‖r₀‖": "residual",
    "steps, as stated": "iterations_stated",
    "steps, corrected": "iterations_corrected",
}
_BEHIND_IT = {
    "‖J‖": "norm",
    "ε": "epsilon",
    "σ_min": "sigma_min",
    "r_min": "r_min",
    "η": "eta",
    "L": "smoothness",
    "‖J̄ - J‖": "linearization",
    "E_min": "e_min",
    "E_max": "e_max",
    "E_J1": "e_j1",
    "E_J2": "e_j2",
    "additivity gap": "additivity_gap",
}

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class TextTable:
    """A table ready to be shown."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def sweep_tables(rows: Rows) -> list[TextTable]:
    """The tables of a sweep, from the rows of its file."""
    seeds = len({row["seed"] for row in rows})
    return [
        _medians("Measured: medians over classes (for ρ the mean), then over seeds", rows, _MEASURED),
        _medians("Behind it: medians as above", rows, _BEHIND_IT),
        _conditions(f"Classes in which a condition holds, as written / corrected, over {seeds} seeds", rows),
        _coverage("Other choices at the same weights: noise in the coreset and ε / ‖J‖", rows),
        _descents("Steps of gradient descent on the coresets, and the lemma's bound", rows),
    ]


def number(value: float | None) -> str:
    """Three digits, or a dash for what has no value.

    >>> number(0.01234), number(12345.6), number(1234567), number(None), number(25)
    ('0.0123', '12,346', '1.23e+06', '–', '25')
    """
    if value is None:
        return "–"
    return f"{value:,.0f}" if 1000 <= abs(value) < 10**6 else f"{value:.3g}"


def _medians(title: str, rows: Rows, columns: Mapping[str, str]) -> TextTable:
    found = [
        (noise, *(number(median(row[name] for row in group)) for name in columns.values()))
        for noise, group in _by_noise(rows).items()
    ]
    return TextTable(title, ("noise", *columns), tuple(found))


def _conditions(title: str, rows: Rows) -> TextTable:
    names = list(dict.fromkeys(name for row in rows for name in row["conditions"]))
    found = [
        (noise, *(_holding([row["conditions"].get(name) for row in group]) for name in names))
        for noise, group in _by_noise(rows).items()
    ]
    return TextTable(title, ("noise", *names), tuple(found))


def _holding(counts: Sequence[Mapping[str, Mapping[str, int]] | None]) -> str:
    """In how many classes the two forms of a condition hold; a dash for a form that is ill-posed in every class."""
    there = [count for count in counts if count is not None]
    if not there:
        return ""
    forms = []
    for form in ("as_written", "to_go_by"):
        every = [count[form] for count in there]
        posed = any(set(count) != {Status.ILL_POSED.value} for count in every)
        forms.append(str(sum(count.get(Status.HOLDS.value, 0) for count in every)) if posed else "–")
    return " / ".join(forms)


def _coverage(title: str, rows: Rows) -> TextTable:
    looked_at = [row for row in rows if row["coverage"]]
    sizes = list(dict.fromkeys(part["k"] for row in looked_at for part in row["coverage"]))
    found = []
    for row in looked_at:
        by_key = {(part["rule"], part["k"]): part for part in row["coverage"]}
        for rule in dict.fromkeys(part["rule"] for part in row["coverage"]):
            cells = [by_key[rule, size] for size in sizes]
            shown = (f"{cell['noise_in_coreset']:.0%}, {cell['relative_epsilon']:.2f}" for cell in cells)
            found.append((_noise(row), rule, *shown))
    return TextTable(title, ("noise", "rule", *(f"k = {size}" for size in sizes)), tuple(found))


def _descents(title: str, rows: Rows) -> TextTable:
    columns = {
        "steps": "steps",
        "conditions hold": "conditions_hold",
        "bound kept": "bound_kept",
        "broken where they hold": "violations",
    }
    found = [(_noise(row), *(str(row["descent"][name]) for name in columns.values())) for row in rows if row["descent"]]
    return TextTable(title, ("noise", *columns), tuple(found))


def _by_noise(rows: Rows) -> dict[str, list[Mapping[str, Any]]]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(_noise(row), []).append(row)
    return groups


def _noise(row: Mapping[str, Any]) -> str:
    return "none" if row["noise"] == "none" else f"{row['noise']}:{row['level']:g}"
