"""Parts of a study's page that are text and tables. Whatever comes from files is escaped here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from continual_crust.report.cells import Summary, noise_words
from continual_crust.report.departures import UNLIKE_THE_PAPER
from continual_crust.report.markup import text
from continual_crust.report.significance import Ranking
from continual_crust.report.study_data import Run, StudyData
from continual_crust.report.study_tables import MARKS, StudyTable, count, number, ours, papers
from continual_crust.report.styles import style_of
from continual_crust.studies.config import RunConfig
from continual_crust.studies.paper import paper_settings

MOST_NAMED = 60
"""Runs of a kind that are named one by one."""
ARROWS = {"better": "↑", "worse": "↓", None: ""}
_SETTINGS = {
    "model": "Network",
    "phase1_epochs": "Epochs, phase 1",
    "phase2_epochs": "Epochs, phase 2",
    "memory_per_class": "Memory for a class",
    "learning_rate": "Learning rate",
    "weight_decay": "Weight decay",
    "batch_size": "Batch",
}
_IF_UNUSUAL = {"precision": "Precision", "image_size": "Image size", **UNLIKE_THE_PAPER}


def numbers_section(tables: Sequence[StudyTable]) -> str:
    """Some of the study's tables, what their marks mean, and the intervals of their means."""
    if not tables:
        return ""
    shown, intervals = [], []
    for table in tables:
        headings = ["Method", *table.headings]
        rows = [(_method(row.method, row.label), [_cell(cell, table) for cell in cells]) for row, cells in table.rows]
        shown.append(_table(table.caption, headings, rows, "numbers"))
        if any(not math.isnan(cell.interval[0]) for _, cells in table.rows for cell in cells):
            between = [
                (text(row.label), [f"<td>{text(_interval(cell, table))}</td>" for cell in cells])
                for row, cells in table.rows
            ]
            intervals.append(_table(table.caption, headings, between, "numbers"))
    files = ", ".join(f"<code>tables/{escape(table.name)}</code>" for table in tables)
    legend = next((table.legend for table in tables if table.has_paper), tables[0].legend)
    parts = [f'<div class="flow">{"".join(shown)}</div>', f'<p class="soft">{text(legend)}</p>']
    if intervals:
        note = "From few seeds such intervals are too narrow: of five, they hold the truth in 85 of 100 cases."
        parts.append(
            "<details><summary>95&nbsp;% bootstrap intervals of the means</summary>"
            f'<div class="flow">{"".join(intervals)}</div><p class="soft">{note}</p></details>'
        )
    parts.append(f"<details><summary>As files</summary><p>{files}, each as .md, .csv and .tex</p></details>")
    return "\n".join(parts)


def settings_table(study: StudyData) -> str:
    """How the runs were trained, data set by data set, and where that is not as in the paper."""
    if not study.runs:
        return ""
    datasets = dict.fromkeys(run.config.dataset for run in study.runs)
    usual = RunConfig("digits", "naive", "simple_cnn")
    unusual = {
        name: heading
        for name, heading in _IF_UNUSUAL.items()
        if any(_setting(run.config, name) != _setting(usual, name) for run in study.runs)
    }
    differs = study.table is not None and not unusual.keys().isdisjoint(UNLIKE_THE_PAPER)
    rows = []
    for dataset in datasets:
        configs = [run.config for run in study.runs if run.config.dataset == dataset]
        paper = paper_settings(dataset, configs[0].noise.kind.value) if study.table is not None else None
        cells = []
        for name in (*unusual, *_SETTINGS):  # a narrow window hides what is far right
            values = {_setting(config, name) for config in configs}
            told = ", ".join(sorted(_value(value) for value in values))
            theirs = None if paper is None else getattr(paper, name, None)
            if theirs is not None and values != {theirs}:
                differs = True
                told = f'<span class="differs">{escape(told)}</span> (paper {escape(_value(theirs))})'
            else:
                told = escape(told)
            cells.append(f"<td>{told}</td>")
        rows.append((escape(dataset), cells))
    table = _table("Settings", ["Data set", *unusual.values(), *_SETTINGS.values()], rows, "plain")
    warning = (
        '<p><strong class="differs">Not all settings are the paper’s</strong>, see below; cells whose memory has '
        "another size than the paper’s, that are trained in another way than the rest, or whose classes come in other "
        "numbers at a time, are not compared with it.</p>"
        if differs
        else ""
    )
    return f"{warning}<details><summary>Settings</summary>{table}</details>"


def significance_section(rankings: Sequence[Ranking | str], pictures: Sequence[str]) -> str:
    """Friedman, Conover and Holm, or why not, and the critical-difference pictures."""
    parts = []
    for ranking, picture in zip(rankings, pictures, strict=True):
        if isinstance(ranking, str):
            parts.append(f"<p>{text(ranking)}</p>")
            continue
        rows = []
        for label, rank in ranking.ranks.sort_values().items():
            name = str(label)
            p_value = ranking.p_values.get(name)
            cells = [f"{rank:.2f}", "" if p_value is None else _p(p_value), ARROWS[ranking.verdicts.get(name)]]
            if ranking.papers is not None:
                cells.append(ARROWS.get(ranking.papers.get(name), ""))
            rows.append((_method(ranking.methods[name], name), [f"<td>{text(cell)}</td>" for cell in cells]))
        headings = ["Method", "Average rank", f"p against {ranking.reference}", "Ours"]
        if ranking.papers is not None:
            headings.append("Paper")
        # It may be still to come, or there is none, as joint learning cannot forget.
        left_out = f" Without a number somewhere: {', '.join(ranking.left_out)}." if ranking.left_out else ""
        parts.append(_table(ranking.title, headings, rows, ""))
        parts.append(
            f'<p class="soft">{text(ranking.test)} ↑ ↓: {text(ranking.reference)} is significantly better or '
            "worse than this method. Bars in the picture join what lies within Nemenyi’s critical difference, which "
            f"is more cautious than Conover’s test. {text(ranking.note)}{text(left_out)}</p>{picture}"
        )
    return "\n".join(parts)


def leftovers(study: StudyData) -> str:
    """Runs that are not in the tables: unreadable, left out, unfinished."""
    waiting = [_description(run) for run in study.runs if run.result is None]
    parts = []
    if study.problems:
        items = "".join(f"<li><code>{escape(name)}</code> {text(why)}</li>" for name, why in study.problems)
        parts.append(f'<p class="caption">Could not be read</p><ul>{items}</ul>')
    parts += [_named(names, f"left out: {why}") for why, names in study.left_out.items()]
    return "\n".join([*parts, _named(waiting, "not finished")] if waiting else parts)


def status(study: StudyData) -> str:
    """How far a study has come, in a sentence."""
    if study.pictures and not study.runs:
        return f"{len(study.pictures)} {plural(len(study.pictures), 'data set')} shown"
    done, all_runs = len(study.finished), len(study.runs)
    told = f"{done} of {all_runs} {plural(all_runs, 'run')} finished"
    unreadable = [f"{len(study.problems)} unreadable"] if study.problems else []
    left_out = (f"{len(names)} left out: {why}" for why, names in study.left_out.items())
    return "; ".join([", ".join([told, *unreadable]), *left_out])


def contents(studies: Sequence[StudyData], names: Sequence[str]) -> str:
    """The list of several studies on a page, by the names of their places on it."""
    done, planned = sum(len(study.finished) for study in studies), sum(len(study.runs) for study in studies)
    items = "".join(
        f'<li><a href="#{name}">{text(study.title)}</a> <span class="soft">{escape(status(study))}</span></li>\n'
        for study, name in zip(studies, names, strict=True)
    )
    told = f"<p>{done} of {planned} {plural(planned, 'run')} finished.</p>"
    return f'{told}<nav aria-label="Studies"><ul>\n{items}</ul></nav>'


def software(studies: Iterable[StudyData]) -> str:
    """What the numbers were made with, as far as the results tell."""
    results = [run.result for study in studies for run in study.finished if run.result is not None]
    devices = sorted({result.device for result in results})
    versions = sorted(
        {", ".join(f"{name} {version}" for name, version in result.versions.items()) for result in results}
    )
    if not results:
        return "Nothing is finished yet."
    return f"Runs on {', '.join(devices)}. Made with {'; or '.join(versions)}."


def plural(how_many: int, word: str) -> str:
    """The word for so many of a thing."""
    return word if how_many == 1 else f"{word}s"


def _cell(cell: Summary, table: StudyTable) -> str:
    measure = table.measure
    known = not math.isnan(cell.mean)
    parts = [f"<b>{text(ours(cell, measure))}</b>" if known else f'<span class="missing">{ours(cell, measure)}</span>']
    if known or cell.planned:
        parts.append(f'<span class="small">{count(cell)}</span>')
    if cell.paper is not None:
        parts.append(f'<span class="small">paper {papers(cell, measure)}</span>')
        if known:
            parts.append(f'<span class="small apart">{number(cell.difference, measure, sign=True)}{_mark(cell)}</span>')
    return f"<td{' class=outside' if cell.outside else ''}>{''.join(parts)}</td>"


def _mark(cell: Summary) -> str:
    if not cell.outside:
        return ""
    words = "above" if cell.outside > 0 else "below"
    return (
        f' <span role="img" aria-label="{words} the paper’s mean ± 2 standard deviations">{MARKS[cell.outside]}</span>'
    )


def _interval(cell: Summary, table: StudyTable) -> str:
    if math.isnan(cell.interval[0]):
        return "–"
    return f"{number(cell.interval[0], table.measure)} to {number(cell.interval[1], table.measure)}"


def _table(caption: str, headings: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]], kind: str) -> str:
    """A table that scrolls by itself where it is too wide. Cells and row names must be HTML already."""
    head = "".join(f'<th scope="col">{text(heading)}</th>' for heading in headings)
    body = "".join(f'<tr><th scope="row">{name}</th>{"".join(cells)}</tr>\n' for name, cells in rows)
    # The caption stands outside, or it would scroll away with a table that is too wide for a phone.
    return f"""<div class="captioned"><p class="caption">{text(caption)}</p>
<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">
<table class="{kind}" aria-label="{escape(caption)}">
<thead><tr>{head}</tr></thead>
<tbody>
{body}</tbody></table></div></div>"""


def _method(method: str, label: str) -> str:
    return f'<span class="dot" style="background:{style_of(method).colour}"></span>{text(label).replace("_", "_<wbr>")}'


def _named(names: Sequence[str], what: str) -> str:
    """Runs about which there is the same to say."""
    shown = [*names[:MOST_NAMED], *([f"and {len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else [])]
    items = "".join(f"<li>{text(name)}</li>" for name in shown)
    head = f"{len(names)} {plural(len(names), 'run')} {text(what)}"
    return f"<details><summary>{head}</summary><ul>{items}</ul></details>"


def _description(run: Run) -> str:
    config = run.config
    words = f"{config.dataset}, {noise_words(config.noise)}, {style_of(config.method).label}, seed {config.seed}"
    return words if run.folder is not None else f"{words} (not begun)"


def _setting(config: RunConfig, name: str) -> Any:
    return getattr(config if hasattr(config, name) else config.training, name)


def _value(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "as usual", False: "no", True: "yes"}[value]
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
