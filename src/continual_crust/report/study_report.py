"""The report of a study, or of many: one page that needs nothing else, and all its tables and figures as files."""

from __future__ import annotations

import io
from collections.abc import Collection, Sequence
from html import escape
from pathlib import Path

from PIL import Image

from continual_crust.errors import told_if_unwritable
from continual_crust.report.cells import (
    SHARES,
    Column,
    Row,
    build_grid,
    noise_words,
    safe_name,
    unique,
)
from continual_crust.report.drawing import png, svg
from continual_crust.report.figures import PER_ROW, contact_sheet
from continual_crust.report.markup import image, text, whole_page
from continual_crust.report.matrix_viewer import SCRIPT, Matrix, viewer
from continual_crust.report.significance import Ranking, rankings
from continual_crust.report.study_data import Run, StudyData, read_studies
from continual_crust.report.study_figures import (
    CURVES,
    Shown,
    against_noise,
    critical_difference_diagram,
    over_experiences,
)
from continual_crust.report.study_sections import (
    contents,
    leftovers,
    numbers_section,
    settings_table,
    significance_section,
    software,
    status,
)
from continual_crust.report.study_style import study_css
from continual_crust.report.study_tables import StudyTable, as_csv, as_latex, as_markdown, study_tables
from continual_crust.studies.memory import ClassMemory, load_memory
from continual_crust.writing import write_atomically

SHEET_COLOURS = 128
"""Enough for small images; a page can hold dozens of sheets."""
INNER = ("tables", "figures")
"""Folders of a report beside its page."""
WRITTEN = "files-of-this-report.txt"
"""The list of what a report wrote there, by which the next one knows what is not a person's."""


def write_report(folder: Path, out: Path | None = None) -> Path:
    """Write ``index.html``, ``tables/`` (Markdown, CSV, LaTeX) and ``figures/`` (SVG, PNG).

    What an earlier report wrote there and this one did not is removed.

    Parameters
    ----------
    folder
        Of a study, however far it has come, or a folder of such folders.
    out
        Where to write; by default ``report`` inside `folder`.

    Returns
    -------
    The page.

    Raises
    ------
    InputError
        If there is no study, or nothing can be written. Runs that cannot be read are told on the page.
    """
    studies = read_studies(folder)
    out = folder / "report" if out is None else out
    with told_if_unwritable(out):
        for inner in INNER:
            (out / inner).mkdir(parents=True, exist_ok=True)
        names = _unique([safe_name(study.id) for study in studies])
        parts = [_StudyPart(study, name, out) for study, name in zip(studies, names, strict=True)]
        page = out / "index.html"
        write_atomically(page, _page(studies, names, [part.html(len(studies) > 1) for part in parts]))
        _remove_earlier(out, {file for part in parts for file in part.files})
    return page


class _StudyPart:
    """Everything about one study: writes its files and says what the page shows."""

    def __init__(self, study: StudyData, name: str, out: Path) -> None:
        self.study = study
        self.name = name
        self.out = out
        self.grid = build_grid(study)
        self.written: list[str] = []
        self.files: list[str] = []

    def html(self, heading: bool) -> str:
        """The part of the page; a study that is alone on it needs no heading of its own."""
        level = 3 if heading else 2
        tables = study_tables(self.name, self.grid)
        for table in tables:
            self._write_table(table)
        shares = [table for table in tables if table.measure.is_share]
        times = [table for table in tables if not table.measure.is_share]
        sections = [
            ("", settings_table(self.study)),
            ("Images", self._pictures()),
            ("Results", numbers_section(shares)),
            ("Against the noise", self._against_noise()),
            ("Over the experiences", self._over_experiences()),
            ("Accuracy matrix", self._matrices()),
            ("What is remembered", self._sheets()),
            ("Significance", self._significance()),
            ("Run times", numbers_section(times)),
            ("", leftovers(self.study)),
        ]
        body = "\n".join(
            (f"<h{level}>{title}</h{level}>\n" if title else "") + inner for title, inner in sections if inner
        )
        head = f'<h2 class="study" id="{self.name}">{text(self.study.title)}</h2>\n' if heading else ""
        return f"""<section aria-label="{escape(self.study.title)}">
{head}<p class="soft"><code>{escape(self.study.id)}</code> {escape(status(self.study))}.</p>
{body}
</section>
"""

    def _pictures(self) -> str:
        """Sheets of sample images, which are files already."""
        figures = []
        for path in self.study.pictures:
            dataset = path.stem.removeprefix("samples-")
            try:
                pixels = path.read_bytes()
                Image.open(io.BytesIO(pixels)).verify()
            except (OSError, SyntaxError):
                figures.append(f"<p>{text(path.name)} cannot be read; run the study again.</p>")
                continue
            self._write(f"figures/{safe_name(self.name, dataset)}.png", pixels)
            figures.append(_image("png", pixels, f"Twelve training images of each class of {dataset}.", text(dataset)))
        return _side(figures) if figures else ""

    def _against_noise(self) -> str:
        """Figures side by side for each data set that has several noise levels."""
        parts = []
        for dataset in self._datasets():
            figures = [
                self._figure(shown, dataset, "noise", measure.name)
                for measure in SHARES
                if (shown := against_noise(self.grid, dataset, measure)) is not None
            ]
            if figures:
                parts.append(f'<p class="caption">{text(dataset)}</p>{_side(figures)}')
        return "\n".join(parts)

    def _over_experiences(self) -> str:
        """Figures for each column, those of the noisiest data open."""
        parts = []
        for column in self.grid.columns:
            figures = [
                self._figure(shown, column.dataset, _noise_name(column), "experiences", name)
                for name in CURVES
                if (shown := over_experiences(self.grid, column, name)) is not None
            ]
            if figures:
                is_open = " open" if column == self._noisiest(column.dataset) else ""
                parts.append(f"<details{is_open}><summary>{text(_words(column))}</summary>{_side(figures)}</details>")
        return "\n".join(parts)

    def _matrices(self) -> str:
        # The noisiest first, and of it the last method: what a study is about.
        columns = sorted(self.grid.columns, key=lambda column: -column.noise.level)
        cells = [(row, column) for column in columns for row in self.grid.rows]
        matrices = [
            Matrix(f"{row.label}: {_words(column)}", results)
            for row, column in cells
            if (results := self.grid.results(row, column))
        ]
        if not matrices:
            return ""
        told = (
            '<p class="soft">How well each experience (column) is known after learning each (row). Step through them '
            "with the buttons, the slider, or ← and → on the matrix.</p>"
        )
        first = sum(bool(self.grid.results(row, columns[0])) for row in self.grid.rows)
        return told + viewer(matrices, f"{self.name}-matrix", chosen=max(0, first - 1))

    def _sheets(self) -> str:
        """Contact sheets for the noisiest version of each data set, of the first seed that has one."""
        parts = []
        for dataset in self._datasets():
            columns = [column for column in self.grid.columns if column.dataset == dataset]
            for column in sorted(columns, key=lambda column: -column.noise.level):
                memories = {row: found for row in self.grid.rows if (found := self._memory(row, column))}
                if not memories:
                    continue
                sheets = [self._sheet(row, column, *found) for row, found in memories.items()]
                wrong = "mislabelled" if column.noise.kind.is_about_labels else "corrupted"
                framed = f'<span class="wrong">Red frame</span>: {wrong}.' if column.noise.level else ""
                parts.append(f'<p class="caption">{text(_words(column))}. {framed}</p>{_side(sheets)}')
                break
        return "\n".join(parts)

    def _memory(self, row: Row, column: Column) -> tuple[Run, list[ClassMemory]] | None:
        runs = [run for run in self.grid.runs.get((row, column), ()) if run.result is not None]
        for run in sorted(runs, key=lambda run: run.config.seed):
            memory = load_memory(run.folder / "memory.npz") if run.folder is not None else None
            if memory:
                return run, memory
        return None

    def _sheet(self, row: Row, column: Column, run: Run, memory: Sequence[ClassMemory]) -> str:
        total, clean = sum(part.total for part in memory), sum(part.clean for part in memory)
        figure = contact_sheet(
            {part.name: part.images for part in memory},
            {part.name: part.is_clean for part in memory},
            most_per_row=PER_ROW,
            counts={part.name: (part.total, part.clean) for part in memory},
        )
        by_class = ", ".join(f"{part.name} {part.clean} of {part.total}" for part in memory)
        shown = Shown(
            figure, f"Images that {row.label} keeps; {total - clean} of {total} are not clean. Clean: {by_class}."
        )
        caption = f"<strong>{text(row.label)}</strong>, seed {run.config.seed}: {clean} of {total} clean"
        return self._figure(
            shown, column.dataset, _noise_name(column), "memory", row.label, caption=caption, raster=True
        )

    def _significance(self) -> str:
        found = rankings(self.grid)
        pictures = []
        for number, ranking in enumerate(found):
            if isinstance(ranking, Ranking):
                shown = critical_difference_diagram(ranking.ranks, ranking.difference, ranking.methods)
                pictures.append(f'<div class="wide">{self._figure(shown, "ranks", str(number + 1))}</div>')
            else:
                pictures.append("")
        return significance_section(found, pictures)

    def _figure(self, shown: Shown, *name: str, caption: str = "", raster: bool = False) -> str:
        """Write a figure as SVG and PNG, and return it as an image that needs no file."""
        unused = unique(safe_name(self.name, *name), self.written)
        self.written.append(unused)
        vector, pixels = svg(shown.figure), png(shown.figure)
        if raster:
            pixels = _fewer_colours(pixels)
        self._write(f"figures/{unused}.svg", vector)
        self._write(f"figures/{unused}.png", pixels)
        kind, data = ("png", pixels) if raster else ("svg+xml", vector)
        return _image(kind, data, shown.alt, caption)

    def _write_table(self, table: StudyTable) -> None:
        for ending, content in (("md", as_markdown(table)), ("csv", as_csv(table)), ("tex", as_latex(table))):
            self._write(f"tables/{table.name}.{ending}", content)

    def _write(self, file: str, content: str | bytes) -> None:
        self.files.append(file)
        write_atomically(self.out / file, content)

    def _datasets(self) -> list[str]:
        return list(dict.fromkeys(column.dataset for column in self.grid.columns))

    def _noisiest(self, dataset: str) -> Column:
        """The noisiest column of a data set that has any result, or just the noisiest."""
        columns = [column for column in self.grid.columns if column.dataset == dataset]
        known = [column for column in columns if any(self.grid.results(row, column) for row in self.grid.rows)]
        return max(known or columns, key=lambda column: column.noise.level)


def _remove_earlier(out: Path, files: Collection[str]) -> None:
    """Remove what is in an earlier report's list and not among these files, and write their own list."""
    listed = out / WRITTEN
    earlier = listed.read_text(encoding="utf-8", errors="replace").splitlines() if listed.is_file() else []
    # The list is only compared with what lies there, so that no line of it can lead elsewhere.
    inside = [f"{inner}/{path.name}" for inner in INNER for path in (out / inner).iterdir()]
    for file in set(inside) & set(earlier) - set(files):
        (out / file).unlink()
    write_atomically(listed, "".join(f"{file}\n" for file in sorted(files)))


def _page(studies: Sequence[StudyData], names: Sequence[str], parts: Sequence[str]) -> str:
    title = studies[0].title if len(studies) == 1 else f"{len(studies)} studies"
    body = f"""<main>
<h1>{text(title)}</h1>
{contents(studies, names) if len(studies) > 1 else ""}
{"".join(parts)}
<h2 class="study">What the words mean</h2>
<p>Accuracy: on clean test images after the last experience, mean over experiences. Forgetting: accuracy lost since
an experience was learned, mean over all pairs of an earlier and a later one; negative is a gain. Purity: share of
the memory that is undamaged and rightly labelled, mean over classes. Time: training and selection, without
evaluation.</p>
<p class="soft">{text(software(studies))}</p>
</main>
<script>{SCRIPT}</script>
"""
    return whole_page(f"{title} – continual-crust", study_css(), body)


def _image(kind: str, data: bytes, alt: str, caption: str) -> str:
    """A figure that needs no file."""
    head = f"<figcaption>{caption}</figcaption>" if caption else ""
    return f"<figure>{head}{image(kind, data, alt)}</figure>\n"


def _side(figures: Sequence[str]) -> str:
    return f'<div class="side">{"".join(figures)}</div>'


def _words(column: Column) -> str:
    return f"{column.dataset}, {noise_words(column.noise)}"


def _noise_name(column: Column) -> str:
    return str(column.noise).replace(":", "-")


def _fewer_colours(pixels: bytes) -> bytes:
    buffer = io.BytesIO()
    Image.open(io.BytesIO(pixels)).convert("RGB").quantize(SHEET_COLOURS).save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def _unique(names: Sequence[str]) -> list[str]:
    """The names, those that occur again with a number behind."""
    found: list[str] = []
    for name in names:
        found.append(unique(name, found))
    return found
