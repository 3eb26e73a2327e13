"""The paper's tables with our numbers in them, cell by cell."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from continual_crust.data.noise import Noise, NoiseKind
from continual_crust.report.cells import PURITY, SHARES, Measure, outside_of
from continual_crust.report.evidence import NOT_RUN, Cell, Evidence, Place, spread, table_of_what_was_run
from continual_crust.report.styles import style_of
from continual_crust.studies.paper import WITHOUT_MEMORY, PaperTable

SEEDS = range(5)
"""Of the paper's methods."""
OUR_SEEDS = range(2, 7)
"""Of what is ours: the first two seeds are for tuning it."""
AS_RELEASED, AS_WRITTEN = "CRUST as released", "CRUST as written"
IN_TWO_PHASES = "CRUST, memory by random"
"""How tables call replay that is trained in two phases, as CRUST is."""
READINGS: dict[str, tuple[str, ...]] = {
    "replay": (IN_TWO_PHASES,),
    "der": (style_of("der").label,),
    "crust": (AS_WRITTEN, style_of("cumulative_crust").label),
    "cosine_crust": (style_of("cumulative_cosine_crust").label,),
}
"""Other readings of the paper's methods, shown beside its numbers where a study has them, but not counted."""
NAMES = {"crust": AS_RELEASED, "der": "DER, alpha 3.0", "cumulative": "Cumulative, restart"}
"""What is taken for a method of the paper, where that is not the method with our defaults."""
OURS = tuple(style_of(method).label for method in ("sift", "sift_oracle", "oracle"))
"""Our own method, what it would come to with a judge that is never wrong, and what CRUST would."""
TABLES = (
    "main_label_0.5",
    *("mnist_label_300", "mnist_label_200", "mnist_label_100"),
    *("fashionmnist_label_300", "cifar10_label_300", "mstar_label_60"),
    *("mnist_instance_128", "fashionmnist_instance_128", "mstar_instance_30"),
    *("fashionmnist_purity_salt_and_pepper", "fashionmnist_purity_uniform"),
)
"""The paper's tables that can be filled, by id, in the order in which one would read them."""
LEFT_OUT = ("pathmnist",)
"""Data sets that are at hand only as a sample."""
WITHIN, BETTER, WORSE = "within", "better", "worse"
DATASET_NAMES = {"mnist": "MNIST", "fashionmnist": "FashionMNIST", "cifar10": "CIFAR10", "mstar": "MSTAR"}


@dataclass(frozen=True)
class Comparison:
    """One number of the paper beside ours."""

    method: str
    """A name for people."""
    place: Place
    measure: Measure
    ours: Cell
    paper: tuple[float, float] | None
    counts: bool = True
    """Whether this is what is taken for the paper's method, and not another reading of it."""

    @property
    def verdict(self) -> str:
        """How ours stands to the paper's mean ± 2 standard deviations; empty where one of them is missing."""
        mean = self.ours.mean(self.measure)
        if self.paper is None or math.isnan(mean):
            return ""
        outside = outside_of(mean, self.paper)
        if not outside:
            return WITHIN
        return BETTER if (outside > 0) == self.measure.higher_is_better else WORSE

    def words(self) -> str:
        """Both numbers and the verdict, for a cell of a table."""
        verdict = self.verdict if self.verdict in ("", WITHIN) else f"**{self.verdict}**"
        return "<br>".join(filter(None, [self.numbers("<br>"), verdict]))

    def numbers(self, between: str = ", ") -> str:
        """Our number and the paper's, if it has one."""
        ours = self.ours.words(self.measure)
        return ours if self.paper is None else f"{ours}{between}paper {spread(*self.paper, 2)}"


def comparisons(table: PaperTable, evidence: Evidence, measure: Measure) -> Iterator[list[Comparison]]:
    """The rows of a table: the paper's methods in its order, each in all its readings, then ours."""
    places = places_of(table)
    for method in table.methods:
        name, *others = _names(method, table)
        for reading in [name, *(other for other in others if evidence.plans(other, places))]:
            yield [
                Comparison(
                    reading,
                    place,
                    measure,
                    evidence.cell(reading, place, SEEDS),
                    table.value(method, place.noise.level, measure.name, place.dataset),
                    counts=reading == name,
                )
                for place in places
            ]
    for name in OURS:
        yield [Comparison(name, place, measure, evidence.cell(name, place, OUR_SEEDS), None) for place in places]


def _names(method: str, table: PaperTable) -> list[str]:
    """The names under which a method of the paper was run: first the one that counts, then other readings."""
    names = [NAMES.get(method, style_of(method).label), *READINGS.get(method, ())]
    # A large alpha holds on to old answers against wrong labels. Where labels are right DER has its own.
    return names[::-1] if method == "der" and table.noise != NoiseKind.LABEL.value else names


def places_of(table: PaperTable) -> list[Place]:
    """The columns of a table."""
    kind = NoiseKind(table.noise)
    return [
        Place(dataset, Noise(kind, level), table.memory("crust", dataset) or 0)
        for dataset in table.datasets
        if dataset not in LEFT_OUT
        for level in table.levels
    ]


def comparison_tables(table: PaperTable, evidence: Evidence) -> str:
    """A table of the paper as Markdown: the first that it measures, and the rest to be unfolded."""
    first = next(measure for measure in SHARES if measure.name in table.measures)
    rest = {measure: _markdown(table, evidence, measure, False) for measure in SHARES if measure is not first}
    folded = [
        f"<details><summary>{measure.title}</summary>\n\n{text}\n</details>\n" for measure, text in rest.items() if text
    ]
    return "\n".join([_markdown(table, evidence, first), *folded])


def tally(table: PaperTable, evidence: Evidence) -> Counter[str]:
    """How many of the paper's numbers there are, and how ours stand to them, in the first reading."""
    counts: Counter[str] = Counter()
    for comparison in counted(table, evidence):
        counts["numbers"] += 1
        counts[comparison.verdict or NOT_RUN] += 1
    return counts


def counted(table: PaperTable, evidence: Evidence) -> Iterator[Comparison]:
    """All numbers of the paper beside ours."""
    for measure in SHARES:
        for row in comparisons(table, evidence, measure):
            yield from (cell for cell in row if cell.paper is not None and cell.counts)


def heading(table: PaperTable, place: Place) -> str:
    """The heading of a column: what the columns of the table differ in."""
    return DATASET_NAMES[place.dataset] if len(table.levels) == 1 else f"{place.noise.level:.1f}"


def _markdown(table: PaperTable, evidence: Evidence, measure: Measure, tells_missing: bool = True) -> str:
    rows = list(comparisons(table, evidence, measure))
    if measure is PURITY:
        # Methods without a memory have nothing that could be clean.
        unremembering = {NAMES.get(method, style_of(method).label) for method in WITHOUT_MEMORY}
        rows = [row for row in rows if row[0].method not in unremembering]
    headings = [heading(table, place) for place in places_of(table)]
    cells = [[row[0].method, *(cell.words() for cell in row)] for row in rows]
    return table_of_what_was_run([measure.title, *headings], cells, tells_missing=tells_missing)
