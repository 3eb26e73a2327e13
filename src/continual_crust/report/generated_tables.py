"""Tables inside a hand-written page, each generated from collected results.

A place for a table is a pair of comments; what lies between them is written anew, and nothing else::

    <!-- table: main_label_0.5 -->
    <!-- end of table -->
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from continual_crust.errors import InputError, unknown_name
from continual_crust.report.beyond import beyond_table
from continual_crust.report.cells import SHARES, noise_words
from continual_crust.report.departures import UNLIKE_THE_PAPER, setting_words
from continual_crust.report.evidence import NOT_RUN, Evidence, Place, full_name_of, table_of_what_was_run
from continual_crust.report.moved import moved_table
from continual_crust.report.paper_comparison import (
    BETTER,
    DATASET_NAMES,
    TABLES,
    WITHIN,
    WORSE,
    comparison_tables,
    counted,
    heading,
    tally,
)
from continual_crust.report.surpass import elsewhere_table, targets_table
from continual_crust.report.tables import markdown_table
from continual_crust.studies.collected import Collected
from continual_crust.studies.config import RunConfig
from continual_crust.studies.paper import PaperTable, paper_table
from continual_crust.studies.study import Study, run_id
from continual_crust.studies.study_file import find_study, shipped_studies
from continual_crust.writing import write_atomically

PLACE = re.compile(r"(<!-- table: (?P<name>[^\n]*?) -->\n)(?P<old>.*?)(<!-- end of table -->)", re.DOTALL)
OWN_STUDIES = ("surpass_", "beyond_")
"""How the ids of studies begin that have no table of the paper, but cells in the tables here."""


def write_tables(page: Path, collected: Path) -> bool:
    """Write the tables of a page anew; returns whether that changed it."""
    try:
        old = page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InputError(f"cannot read the page {page}; give a Markdown file with places for tables.") from None
    if "<!-- table:" not in old:
        raise InputError(
            f"{page} has no place for a table; mark one by '<!-- table: NAME -->' and '<!-- end of table -->'."
        )
    new = with_tables(old, collected)
    if new != old:
        write_atomically(page, new)
    return new != old


def with_tables(text: str, collected: Path) -> str:
    """A page's text with every table generated from a folder of collected results.

    Beside what is :func:`available_tables`, a page can ask for a study of one's own: ``study FILE.yaml``.
    """
    rows = Collected.read(collected)
    files = [place["name"] for place in PLACE.finditer(text) if place["name"].endswith((".yaml", ".yml"))]
    own = {
        name: partial(_variants, find_study(name.removeprefix("study "))[0], Evidence((), rows.rows.values()))
        for name in files
    }
    return filled(text, {**available_tables(rows), **own})


def filled(text: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """A page's text with what these functions return in the places of their names."""
    places = list(PLACE.finditer(text))
    if len(places) != text.count("<!-- table:") or any("<!-- table:" in place["old"] for place in places):
        raise InputError("a '<!-- table: … -->' of the page has no '<!-- end of table -->'; add it.")
    for place in places:
        if place["name"] not in tables:
            raise unknown_name("table", place["name"], tables)
    return PLACE.sub(lambda place: f"{place[1]}\n{tables[place['name']]().strip()}\n\n{place[4]}", text)


def available_tables(collected: Collected) -> Mapping[str, Callable[[], str]]:
    """Everything a page can ask for: the paper's tables by id, summaries, ours, and any study as ``study ID``."""
    studies = shipped_studies()
    evidence = evidence_of(collected)
    papers = list(map(paper_table, TABLES))
    tables: dict[str, Callable[[], str]] = {
        "what there is": partial(_what_there_is, collected),
        "verdicts": partial(_verdicts, papers, evidence),
        "what is worse": partial(_what_is_worse, papers, evidence),
        "targets": partial(targets_table, evidence),
        "elsewhere": partial(elsewhere_table, evidence),
        "moved": partial(moved_table, evidence),
    }
    tables |= {table.id: partial(comparison_tables, table, evidence) for table in papers}
    tables |= {f"beyond {dataset}": partial(beyond_table, dataset, evidence) for dataset in ("digits", *DATASET_NAMES)}
    with_runs = (study for study in studies.values() if not study.show)
    return tables | {f"study {study.id}": partial(_variants, study, evidence) for study in with_runs}


def evidence_of(collected: Collected) -> Evidence:
    """What was collected of the studies that have cells in the tables here."""
    studies = shipped_studies().values()
    planning = (study for study in studies if study.table or study.id.startswith(OWN_STUDIES))
    return Evidence(planning, collected.rows.values())


def _what_there_is(collected: Collected) -> str:
    rows = list(collected.rows.values())
    stale = sum(run_id(row.config) != row.run for row in rows) + len(collected.obsolete)
    if not rows:
        return "No run has been collected yet."
    devices = ", ".join(sorted({row.result.device for row in rows}))
    told = f"{len(rows) + len(collected.obsolete)} runs have been collected, made on: {devices}."
    return told + (f" {stale} of them are of an earlier state of the program and not shown." if stale else "")


def _verdicts(papers: list[PaperTable], evidence: Evidence) -> str:
    columns = ("numbers", WITHIN, BETTER, WORSE, NOT_RUN)
    counts = {table.id: tally(table, evidence) for table in papers}
    rows = [[f"`{name}`", *(str(count[column]) for column in columns)] for name, count in counts.items()]
    return markdown_table(["table", *columns], rows)


def _what_is_worse(papers: list[PaperTable], evidence: Evidence) -> str:
    """A row for each method and measure of a table. What the main table has is not repeated from the others."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    told: set[tuple[str, Place, str]] = set()
    for table in papers:
        for found in counted(table, evidence):
            key = found.method, found.place, found.measure.name
            if found.verdict == WORSE and key not in told:
                told.add(key)
                cells = rows.setdefault((f"`{table.id}`", found.method, found.measure.title.lower()), [])
                cells.append(f"{heading(table, found.place)}: {found.numbers()}")
    if not rows:
        return "None so far."
    return markdown_table(
        ["table", "method", "measure", "where"], [[*names, "<br>".join(cells)] for names, cells in rows.items()], 4
    )


def _variants(study: Study, evidence: Evidence) -> str:
    """Every variant of a study as a row."""
    groups: dict[tuple[str, str], list[RunConfig]] = {}
    for config in study.runs():
        where = f"{DATASET_NAMES.get(config.dataset, config.dataset)}, {noise_words(config.noise)}"
        where += f", k = {config.training.memory_per_class}"
        groups.setdefault((full_name_of(config, study.overrides), where), []).append(config)
    rows = []
    for (name, where), configs in groups.items():
        cell = evidence.of(configs)
        rows.append([name, where, *(cell.words(measure) for measure in SHARES)])
    changed = {name: study.overrides[name] for name in UNLIKE_THE_PAPER if study.overrides.get(name)}
    shared = ", ".join(setting_words(f"training.{name}", value) for name, value in changed.items())
    shared = f"All with {shared}, where a method takes it.\n\n" if shared else ""
    places = {where for _, where in groups}
    if len(places) == 1:
        return f"{shared}{places.pop()}:\n\n" + table_of_what_was_run(
            ["method", *(measure.title.lower() for measure in SHARES)], [[row[0], *row[2:]] for row in rows]
        )
    headings = ["method", "where", *(measure.title.lower() for measure in SHARES)]
    return shared + table_of_what_was_run(headings, rows, 2)
