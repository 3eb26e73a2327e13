"""The figures that belong to a single run."""

from __future__ import annotations

from pathlib import Path

from continual_crust.report.figures import accuracy_matrix, accuracy_over_experiences, contact_sheet, save
from continual_crust.report.styles import style_of
from continual_crust.studies.memory import memory_by_class
from continual_crust.studies.run import FinishedRun


def write_run_figures(finished: FinishedRun, folder: Path) -> list[Path]:
    """Write ``accuracy.png``, ``accuracy_matrix.png`` and, if anything is remembered, ``memory.png``.

    Returns
    -------
    The files written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    result = finished.result
    figures = {
        "accuracy.png": accuracy_over_experiences([result]),
        "accuracy_matrix.png": accuracy_matrix(result),
    }
    images, is_clean = memory_by_class(finished)
    if images:
        title = f"What {style_of(result.method).label} remembers, {result.dataset} with noise {result.noise}"
        figures["memory.png"] = contact_sheet(images, is_clean, title)
    else:
        # Of an earlier run in this folder, perhaps; it would pass for this one's.
        (folder / "memory.png").unlink(missing_ok=True)
    for name, figure in figures.items():
        save(figure, folder / name)
    return [folder / name for name in figures]
