"""One HTML page that shows at a glance whether a memory stayed clean."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from torch import Tensor

from continual_crust.data.noise import Noise, NoiseKind
from continual_crust.report.drawing import png
from continual_crust.report.figures import PER_ROW, accuracy_over_experiences, contact_sheet, purity_by_method
from continual_crust.report.markup import image, text, whole_page
from continual_crust.report.page_style import CSS
from continual_crust.report.styles import style_of
from continual_crust.report.tables import by_method, percent, summary_table
from continual_crust.studies.memory import memory_by_class
from continual_crust.studies.result import RunResult
from continual_crust.studies.run import FinishedRun
from continual_crust.writing import write_atomically

BASELINE = "replay"
"""The method that the others' memories are compared with."""


@dataclass(frozen=True)
class DemoRun:
    """A run for the page. The memory is needed for the first seed only."""

    result: RunResult
    memory_images: dict[str, Tensor] = field(default_factory=dict)
    """Bytes by class name, (n, channels, height, width)."""
    is_clean: dict[str, Tensor] = field(default_factory=dict)
    """By class name, a flag for each image."""


def demo_run(finished: FinishedRun) -> DemoRun:
    """What the page needs of a finished run."""
    return DemoRun(finished.result, *memory_by_class(finished))


def write_demo_page(runs: Sequence[DemoRun], folder: Path) -> Path:
    """Write ``index.html``, which holds everything it shows, and its figures as PNG beside it.

    Parameters
    ----------
    runs
        Several methods on the same noisy data, one or more seeds each. The memories of the first run's seed
        are shown.
    folder
        Is made if it is not there.

    Returns
    -------
    The page.
    """
    results = [run.result for run in runs]
    by_method(results)  # refuses what cannot be compared before anything is written
    folder.mkdir(parents=True, exist_ok=True)
    sheets = [_sheet(run, folder) for run in runs if run.result.seed == results[0].seed and run.memory_images]
    summary = summary_table(results)
    figures = []
    if summary["purity"].notna().any():
        alt = f"Clean share of each method’s memory: {_listed(summary, 'purity')}."
        figures.append(_picture(folder / "purity.png", png(purity_by_method(results)), alt))
    alt = f"Accuracy after each experience. At the end: {_listed(summary, 'accuracy')}."
    figures.append(_picture(folder / "accuracy.png", png(accuracy_over_experiences(results)), alt))
    page = folder / "index.html"
    write_atomically(page, _page(runs, sheets, figures, _table(summary)))
    return page


def headline(runs: Sequence[DemoRun]) -> str:
    """The finding in one sentence: the mean purity of replay's memory and of the others', whoever wins."""
    summary = summary_table([run.result for run in runs])
    # Compared as they are shown: nobody should read "cleaner" above two equal numbers.
    clean = {
        method: min(round(100 * purity), 100 if purity == 1 else 99)
        for method, purity in zip(summary["method"], summary["purity"], strict=True)
        if not math.isnan(purity)
    }
    same = "Same data, same network"
    if len({tuple(map(len, run.memory_images.values())) for run in runs if run.memory_images}) == 1:
        same += ", same memory size"
    others = [method for method in clean if method != BASELINE]
    if not clean:
        return f"{same}: none of these methods keeps a memory"
    if BASELINE not in clean or not others:
        return f"{same}: " + _and(f"{style_of(method).label}’s memory is {clean[method]} % clean" for method in clean)
    rest = _and(f"{style_of(method).label}’s {clean[method]} %" for method in others)
    replay, best = clean[BASELINE], max(clean[method] for method in others)
    if best > replay:
        return f"{same}: replay’s memory is {replay} % clean, {rest}"
    verdict = "no memory is cleaner than replay’s" if best == replay else "replay’s memory is the cleanest here"
    return f"{same}, and {verdict}: {replay} % clean against {rest}"


def _page(runs: Sequence[DemoRun], sheets: Sequence[str], figures: Sequence[str], table: str) -> str:
    first = runs[0].result
    noise = Noise.parse(first.noise)
    seeds = sorted({run.result.seed for run in runs})
    several = len(seeds) > 1
    over = "seeds " + ", ".join(map(str, seeds))
    averaged = f"The headline is the mean over {over}. " if several else ""
    spread = f"Mean ± standard deviation over {over}. " if several else ""
    level, chance = percent(noise.level, digits=0), percent(1 - noise.level, digits=0)
    damage = f"{level} of the training {'labels are wrong' if noise.kind.is_about_labels else 'images are corrupted'}"
    if noise.kind is NoiseKind.NONE:
        damage = "nothing is wrong with the training images"
    software = ", ".join(f"{name} {version}" for name, version in first.versions.items())
    body = f"""<main>
<h1>{text(headline(runs))}</h1>
<p>{sum(map(len, first.experiences))} classes of <em>{text(first.dataset)}</em> are learned one after
another while {text(damage)}. All that a method sees again of a class is what it keeps of it. {averaged}Below
is what each keeps with seed {first.seed}, a row for each class. A <span class="wrong">red frame</span> means:
{_what_is_wrong(noise)}.</p>
<section class="side" aria-label="What each method keeps">
{"".join(sheets)}
</section>
<h2>In numbers</h2>
{table}
<p class="soft">{spread}Clean memory: share that is undamaged and rightly labelled, mean over classes.
Accuracy: on clean test images after the last experience, mean over experiences.
Forgetting: accuracy lost since an experience was learned, mean over all pairs of an earlier and a later one;
negative is a gain. Time: training and selection on {text(first.device)}.</p>
<section class="side" aria-label="Figures">
{"".join(f"<figure>{figure}</figure>" for figure in figures)}
</section>
<h2>What is seen here</h2>
<p>Replay draws its memory at random, so {text(chance)} of it can be expected to be clean: the dashed line.
CRUST and CosineCRUST keep the samples whose gradients lie in the middle of their class, trusting that what is
wrong lies apart. {_about_sift(runs)}None is ever told which samples are wrong; the frames were drawn afterwards, from
the truth that only evaluation has. Whatever is wrong in a memory is learned again with every later class.</p>
<p>This is a small data set and {len(seeds)} {"seeds" if several else "seed"}: small differences may be
chance.</p>
<h2>Do it again</h2>
<p><code>continual-crust demo --seeds {len(seeds)} --level {noise.level:g}</code></p>
<p class="soft">Made with {text(software)}.</p>
</main>
"""
    return whole_page("continual-crust: is the memory clean?", CSS, body)


def _about_sift(runs: Sequence[DemoRun]) -> str:
    if all(run.result.method != "sift" for run in runs):
        return ""
    return (
        "Sift learns everything briefly to find out what does not belong, then only from the rest, moved a little in "
        "every epoch, and forgets memories that later classes show to be theirs, so it may keep fewer. It was "
        "developed on these digits, with seeds 0 to 6. "
    )


def _sheet(run: DemoRun, folder: Path) -> str:
    """A card with a contact sheet under the method's name and what its memory is worth."""
    result, label = run.result, style_of(run.result.method).label
    total = sum(map(len, run.is_clean.values()))
    wrong = total - sum(int(flags.sum()) for flags in run.is_clean.values())
    finding = f"{label}, seed {result.seed}: {percent(result.purity, digits=0)} clean"
    by_class = ", ".join(f"{name} {percent(purity, digits=0)}" for name, purity in result.purity_per_class.items())
    alt = f"Images that {label} keeps; {wrong} of {total} are framed in red. Clean share by class: {by_class}."
    # A method's name becomes part of a file's.
    path = folder / f"memory_{re.sub(r'[^A-Za-z0-9_-]', '_', result.method)}.png"
    picture = _picture(path, png(contact_sheet(run.memory_images, run.is_clean, most_per_row=PER_ROW)), alt)
    count = f"{_what_is_wrong(Noise.parse(result.noise))}: {wrong} of {total} images"
    caption = f"<strong>{text(finding)}</strong><br>{text(count)}"
    return f"<figure><figcaption>{caption}</figcaption>{picture}</figure>\n"


def _what_is_wrong(noise: Noise) -> str:
    if noise.kind is NoiseKind.NONE:
        return "not clean"
    return "wrong label" if noise.kind.is_about_labels else "corrupted image"


def _picture(path: Path, data: bytes, alt: str) -> str:
    """Store a PNG and return it as an image that needs no file."""
    write_atomically(path, data)
    return image("png", data, alt)


def _table(summary: pd.DataFrame) -> str:
    names = {"purity": "Clean memory", "accuracy": "Accuracy", "forgetting": "Forgetting"}
    head = "".join(f'<th scope="col">{name}</th>' for name in ("Method", *names.values(), "Time"))
    rows = []
    for row in summary.to_dict("records"):
        style = style_of(str(row["method"]))
        cells = [text(percent(row[name])) + _spread(row[f"{name}_std"]) for name in names]
        cells.append(f"{row['seconds']:.1f} s")
        dot = f'<span class="dot" style="background:{style.colour}"></span>'
        data = "".join(f"<td>{cell}</td>" for cell in cells)
        rows.append(f'<tr><th scope="row">{dot}{text(style.label)}</th>{data}</tr>\n')
    return f"""<div class="scroll"><table>
<thead><tr>{head}</tr></thead>
<tbody>
{"".join(rows)}</tbody>
</table></div>"""


def _spread(std: float) -> str:
    return "" if math.isnan(std) else f' <span class="spread">± {100 * std:.1f}</span>'


def _listed(summary: pd.DataFrame, measure: str) -> str:
    """Each method with one of its numbers, for those who cannot see a figure."""
    pairs = zip(summary["method"], summary[measure], strict=True)
    return ", ".join(f"{style_of(method).label} {percent(value, digits=0)}" for method, value in pairs)


def _and(parts: Iterable[str]) -> str:
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last
