"""The theorems against the share of noise: small digits, more and more flipped labels or perturbed images."""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch

from continual_crust.data import Noise, NoiseKind, load_dataset
from continual_crust.errors import InputError, told_if_unwritable
from continual_crust.progress import OnProgress, unwatched
from continual_crust.report.drawing import save_png
from continual_crust.report.tables import markdown_table
from continual_crust.report.theory_figure import theory_figure
from continual_crust.strategies import Training, strategy_named
from continual_crust.studies.config import RunConfig
from continual_crust.studies.defaults import defaults_for
from continual_crust.studies.result import versions
from continual_crust.studies.run import FinishedRun, execute
from continual_crust.theory.coverage import coverage
from continual_crust.theory.learner import TheoryReport, median, remembered, theory_report, watched_descent
from continual_crust.theory.quantities import Measurement
from continual_crust.theory.tables import TextTable, sweep_tables
from continual_crust.theory.theorems import Status, Theorem
from continual_crust.writing import write_atomically, write_json

LABEL_LEVELS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
PERTURBED_LEVELS = (0.2, 0.4, 0.6, 0.8)
SEEDS = 3
DESCENT_STEPS = 10
"""Steps of gradient descent taken from the first seed's learners without noise and with the most of each kind."""
_NUMBERS = tuple(field.name for field in fields(Measurement) if field.name != "perturbed")


def sweep(
    out: Path,
    on_progress: OnProgress = unwatched,
    *,
    method: str = "crust",
    seeds: int = SEEDS,
    label_levels: Sequence[float] = LABEL_LEVELS,
    perturbed_levels: Sequence[float] = PERTURBED_LEVELS,
    training: Training | None = None,
    workers: int | None = None,
) -> Path:
    """Train and measure a digits learner at each level of noise; write the numbers, the figure and the tables.

    Parameters
    ----------
    out
        Folder for ``theory_digits.json``, ``theory_digits.png`` and ``theory_digits.md``.
    on_progress
        Called before each run with what it is, how many are done and how many there are; and once at the end.
    method
        Name of a strategy that keeps a memory.
    seeds
        Runs at each level.
    label_levels, perturbed_levels
        Shares of flipped labels and of images with salt and pepper. A share of 0 is a run without noise.
    training
        Epochs, memory and optimizer; the defaults for digits if not given.
    workers
        Processes, each with one thread; one for each core if not given. The numbers do not depend on it.

    Returns
    -------
    The JSON file.
    """
    with told_if_unwritable(out):
        out.mkdir(parents=True, exist_ok=True)
    flipped = [_noise(NoiseKind.LABEL, level) for level in label_levels]
    perturbed = [_noise(NoiseKind.SALT_AND_PEPPER, level) for level in perturbed_levels]
    watched = {Noise(), *flipped[-1:], *perturbed[-1:]}
    plan = [
        (_config(method, noise, seed, training), seed == 0 and noise in watched)
        for noise in dict.fromkeys(flipped + perturbed)
        for seed in range(seeds)
    ]
    rows: list[dict[str, Any]] = []
    measured = _measured(plan, min(workers or os.cpu_count() or 1, len(plan)))
    for config, _ in plan:
        on_progress(f"{config.noise}, seed {config.seed}", len(rows), len(plan))
        rows.append(next(measured))
    on_progress("done", len(plan), len(plan))
    about = {"dataset": "digits", "method": method, "seeds": seeds, "versions": versions()}
    path = out / "theory_digits.json"
    write_json(path, about | {"rows": rows})
    save_png(theory_figure(rows), path.with_suffix(".png"))
    write_atomically(path.with_suffix(".md"), markdown(sweep_tables(rows)))
    return path


def markdown(tables: Sequence[TextTable]) -> str:
    """Tables under their titles, as in a Markdown page."""
    shown = (markdown_table(table.headings, table.rows, names=len(table.headings)) for table in tables)
    return "\n".join(f"**{table.title}**\n\n{rows}" for table, rows in zip(tables, shown, strict=True))


def _config(method: str, noise: Noise, seed: int, training: Training | None) -> RunConfig:
    defaults = defaults_for("digits", noise.kind)
    return RunConfig(
        dataset="digits",
        method=method,
        model=defaults.model,
        noise=noise,
        seed=seed,
        training=training or defaults.training,
        selector=strategy_named(method).default_selector,
    )


def _measured(plan: Sequence[tuple[RunConfig, bool]], workers: int) -> Iterator[dict[str, Any]]:
    """A row for each run, in the order of the plan."""
    if workers == 1:
        for config, close_look in plan:
            threads = torch.get_num_threads()
            torch.set_num_threads(1)  # as in the processes: more threads give other last bits
            try:
                row = _row(config, close_look)
            finally:
                torch.set_num_threads(threads)
            yield row
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        try:
            yield from pool.map(_row, *zip(*plan, strict=True))
        except BrokenProcessPool:
            raise InputError("a worker process was killed, perhaps for lack of memory; try fewer --workers.") from None


def _row(config: RunConfig, close_look: bool) -> dict[str, Any]:
    """Learn, measure and, for a close look, descend and choose anew."""
    finished = execute(config, load_dataset("digits"), torch.device("cpu"))
    return {
        "noise": config.noise.kind.value,
        "level": config.noise.level,
        "seed": config.seed,
        "accuracy": finished.result.accuracy,
        "purity": finished.result.purity,
        **row_of(theory_report(finished)),
        "descent": _descents(finished) if close_look else None,
        "coverage": [asdict(part) for part in coverage(finished)] if close_look else None,
    }


def _noise(kind: NoiseKind, level: float) -> Noise:
    return Noise(kind, level) if level else Noise()


def row_of(report: TheoryReport) -> dict[str, Any]:
    """A report in one line: medians over the classes, and in how many classes each condition holds.

    The share of noise in the coreset is a mean, as purity is.
    """
    parts = [part.measured for part in report.classes]
    theorems = [part.theorem for part in report.classes]
    row: dict[str, Any] = {name: median(getattr(part, name) for part in parts) for name in _NUMBERS}
    row["noise_in_coreset"] = sum(part.noise_in_coreset for part in parts) / len(parts)
    row["relative_epsilon"] = median(part.epsilon / (part.norm + part.e_max) for part in parts if part.beta > 0)
    row["theorem"] = theorems[0].name
    row["allowed_relative_epsilon"] = median(map(_allowed_share, theorems, parts))
    row["iterations_stated"] = median(theorem.iterations[0].value for theorem in theorems)
    row["iterations_corrected"] = median(theorem.iterations[-1].value for theorem in theorems)
    row["applies"] = sum(theorem.applies for theorem in theorems)
    row["conditions"] = {
        condition.name: {
            "as_written": _counts([theorem.conditions[position].status for theorem in theorems]),
            "to_go_by": _counts([theorem.conditions[position].to_go_by.status for theorem in theorems]),
        }
        for position, condition in enumerate(theorems[0].conditions)
    }
    return row


def _descents(finished: FinishedRun) -> dict[str, int]:
    """Steps of gradient descent on every class's coreset: how many the lemma speaks about, how many keep its bound."""
    steps = [step for name in remembered(finished) for step in watched_descent(finished, name, DESCENT_STEPS).steps]
    return {
        "steps": len(steps),
        "conditions_hold": sum(step.conditions_hold for step in steps),
        "bound_kept": sum(step.keeps_bound for step in steps),
        "violations": sum(step.conditions_hold and not step.keeps_bound for step in steps),
    }


def _allowed_share(theorem: Theorem, measured: Measurement) -> float | None:
    """The ε the theorem allows, corrected, as a share of the Jacobian's norm."""
    allowed = next(item.to_go_by.right for item in theorem.conditions if item.name == "Jacobian error")
    return None if allowed is None else allowed / (measured.norm + measured.e_max)


def _counts(statuses: Sequence[Status]) -> dict[str, int]:
    return dict(Counter(status.value for status in statuses))
