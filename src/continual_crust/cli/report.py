"""The commands that look at what was done: ``continual-crust report`` and ``continual-crust theory``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from continual_crust.cli.printing import console, tell_where
from continual_crust.errors import InputError, told_if_unwritable
from continual_crust.progress import OnProgress


def report(
    folder: Annotated[Path, typer.Argument(help="Folder of a study, finished or not, or a folder of such folders.")],
    out: Annotated[Path | None, typer.Option(help="Where to write, by default report/ in that folder.")] = None,
) -> None:
    """Turn a study's results into a page, with its tables as Markdown, CSV and LaTeX and its figures as SVG and PNG."""
    from continual_crust.report.study_report import write_report

    with console.status("writing the report"):
        page = write_report(folder, out)
    tell_where("open ", page, " in a browser")


def theory(
    folder: Annotated[Path | None, typer.Argument(help="Folder of a finished run.", show_default=False)] = None,
    data_root: Annotated[Path | None, typer.Option(help="Folder that holds the run's data, by default data/.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Measure digits learners at every level of noise instead of one run.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for theory.json, by default the run's; with --sweep, by default runs/theory."),
    ] = None,
    samples: Annotated[
        int, typer.Option(help="Most images of a class to look at, its memory among them.", min=1)
    ] = 500,
    memory: Annotated[int, typer.Option(help="MiB of Jacobian to hold at a time; what fits is faster.", min=1)] = 512,
    workers: Annotated[
        int | None, typer.Option(help="Processes for --sweep, by default one for each core.", min=1)
    ] = None,
) -> None:
    """Measure the two theorems' quantities on a learner and say which of their conditions hold."""
    if sweep == (folder is not None):
        raise InputError("theory needs either the folder of a run or --sweep; for example: theory runs/my-run.")
    if folder is None:
        _sweep(out or Path("runs/theory"), workers)
        return
    from continual_crust.data import load_dataset
    from continual_crust.devices import choose_device
    from continual_crust.studies.run import load_run, read_config
    from continual_crust.theory import theory_report
    from continual_crust.theory.printing import print_report
    from continual_crust.writing import write_json

    config = read_config(folder)
    with console.status(f"reading {config.dataset}"):
        dataset = load_dataset(config.dataset, data_root, image_size=config.image_size, crop=config.crop)
    finished = load_run(folder, dataset, choose_device(device))
    with _bar() as advance:
        measured = theory_report(finished, most_samples=samples, memory=memory << 20, on_progress=advance)
    print_report(measured, console)
    target = out or folder
    with told_if_unwritable(target):
        target.mkdir(parents=True, exist_ok=True)
        write_json(target / "theory.json", measured.as_dict())
    tell_where("written to ", target / "theory.json")


def _sweep(out: Path, workers: int | None) -> None:
    from continual_crust.report.theory_sweep import sweep
    from continual_crust.theory.printing import print_sweep

    with _bar() as advance:
        path = sweep(out, advance, workers=workers)
    print_sweep(path, console)
    tell_where("written to ", f"{path}, .png and .md")


@contextmanager
def _bar() -> Iterator[OnProgress]:
    from continual_crust.progress import progress_bar

    with progress_bar(console) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)
