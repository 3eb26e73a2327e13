"""The commands that deal with many runs: ``continual-crust study …``."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from continual_crust.cli.printing import console, counted, follow_runs, tell_where
from continual_crust.errors import InputError

if TYPE_CHECKING:
    from continual_crust.studies.config import RunConfig
    from continual_crust.studies.engines import Engine
    from continual_crust.studies.folder import Runs, StudyFolder
    from continual_crust.studies.result import RunResult
    from continual_crust.studies.study import Study

app = typer.Typer(
    help="Run many configurations and keep what came out: list, show, run, status, collect, tables.",
    no_args_is_help=True,
)
Name = Annotated[str, typer.Argument(help="Id of a shipped study (see `study list`) or the path of a study file.")]
Folder = Annotated[Path, typer.Option("--out", help="Folder in which every study has a folder of its own.")]


@app.command("list")
def list_studies() -> None:
    """List the studies that come with the package: one for each table and figure of the paper, and our own."""
    from continual_crust.studies.study_file import shipped_studies

    for study in shipped_studies().values():
        runs = sum(1 for _ in study.runs())
        console.print(Text.assemble((f"{study.id:36}", "bold"), f" {runs:5} runs  {study.title}"), soft_wrap=True)


@app.command()
def show(name: Name) -> None:
    """Print a study file, to read or to start your own from."""
    from continual_crust.studies.study_file import find_study

    typer.echo(find_study(name)[1], nl=False)  # as it stands: a console would break its lines to its own width


@app.command()
def run(
    name: Name,
    out: Folder = Path("runs"),
    data_root: Annotated[Path | None, typer.Option(help="Folder that holds the data, by default data/.")] = None,
    download: Annotated[bool, typer.Option("--download", help="Fetch data that is missing.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    shard: Annotated[
        str | None, typer.Option(metavar="I/N", help="Do only the I-th of N equal parts (1 to N): for job arrays.")
    ] = None,
    engine: Annotated[str, typer.Option(help="local or ray.")] = "local",
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="local: runs at a time; by default one a core, up to ten on a GPU, where they are faster while "
            "`nvidia-cuda-mps-control -d` is running.",
        ),
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="ray: address of a cluster; by default one is started here.")
    ] = None,
    cpus: Annotated[float | None, typer.Option(min=0, help="ray: CPUs a run takes, by default 1.")] = None,
    gpus: Annotated[
        float | None, typer.Option(min=0, help="ray: GPUs a run takes, by default 0; fractions share one.")
    ] = None,
    retries: Annotated[int | None, typer.Option(min=0, help="ray: tries after a worker is lost, by default 3.")] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write scalars for TensorBoard.")] = False,
    known: Annotated[
        Path | None, typer.Option(help="Leave out runs that `study collect` has put into this folder.")
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(metavar="PATTERN", help="Only runs with such an id, for example 'mnist-*-label-0.5-*-s0-*'."),
    ] = None,
) -> None:
    """Do all runs of a study that are not done. Can be stopped at any time and repeated; nothing is done twice."""
    from continual_crust.studies.collected import Collected
    from continual_crust.studies.engines import sharing_advice
    from continual_crust.studies.folder import StudyFolder
    from continual_crust.studies.study import run_id
    from continual_crust.studies.study_file import find_study
    from continual_crust.studies.work import UNDER_WAY, Workplace

    study, text = find_study(name)
    chosen = _engine(engine, workers, address, cpus, gpus, retries)
    if study.show:
        of_runs = {"--shard": shard, "--only": only, "--known": known}
        if unread := [option for option, value in of_runs.items() if value is not None]:
            raise InputError(f"study {study.id} shows samples and has no runs; leave out {' and '.join(unread)}.")
        _show_samples(study, text, out / study.id, data_root, download)
        return
    if known is not None and known.is_file():
        raise InputError(f"--known {known} is a file; give the folder that `study collect` filled.")
    if known is not None and not known.is_dir():
        console.print(Text(f"Nothing has been collected in {known} yet.", "dim"), soft_wrap=True)
    # Divided first: what is known changes while other shards are at work.
    share = _shard(_fitting(study.runs(), only), shard)
    rows = Collected.read(known).rows if known is not None else {}
    mine = [config for config in share if run_id(config) not in rows]
    folder = StudyFolder(out / study.id, study)
    done = {run_id(config): result for config in mine if (result := folder.finished(config)) is not None}
    todo = [config for config in mine if run_id(config) not in done]
    if engine == "local":  # elsewhere the data may lie where the runs are done
        _refuse_without_data(todo, folder, data_root, download)
        _refuse_other_data(mine, done, f"--out {folder.path}", data_root, download)
        collected = {run: row.result for run, row in rows.items()}
        _refuse_other_data(share, collected, f"--known {known}", data_root, download)
    advice = sharing_advice(device, workers, len(todo)) if engine == "local" and todo else None
    left_out = StudyFolder.create(folder.path, study, text).left_out()
    plan = f": {counted(len(mine), 'run', 'runs')}, {len(mine) - len(todo)} done, {len(todo)} to do."
    if len(share) > len(mine):
        plan += f" Left out as known from {known}: {len(share) - len(mine)}."
    console.print(Text.assemble((study.title, "bold"), plan), soft_wrap=True)
    if left_out:
        finished = counted(left_out, "finished run", "finished runs")
        verb = "is" if left_out == 1 else "are"
        console.print(
            Text(f"{finished} in {folder.path} {verb} none that file and program ask for now.", "dim"), soft_wrap=True
        )
    console.print(f"[dim]{_forecast(folder, mine, todo)}[/dim]")
    if advice is not None:
        console.print(Text(advice, "dim"), soft_wrap=True)
    place = Workplace(folder.path.resolve(), data_root and data_root.resolve(), download, device, tensorboard)
    outcomes, problems = follow_runs(study.id, chosen(todo, place) if todo else (), len(todo))
    told = f"{outcomes['done']} done now, {outcomes['skipped']} done elsewhere, {outcomes['failed']} failed."
    if outcomes[UNDER_WAY]:
        told += f" {counted(outcomes[UNDER_WAY], 'run is', 'runs are')} under way in another process."
    console.print(told)
    if outcomes["failed"] < len(mine):
        console.print(Text(f"continual-crust report {shlex.quote(str(folder.path))}", "dim"), soft_wrap=True)
    if problems:
        (problem, count), failed = problems.most_common(1)[0], outcomes["failed"]
        why = problem.rstrip(".") if count == failed else f"{count} of them: {problem.rstrip('.')}"
        raise InputError(f"{failed} of {len(todo)} runs failed ({why}); mend that and repeat.")


@app.command()
def status(
    path: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a study, for example runs/digits.")],
) -> None:
    """Say how far a study has come, by data set and method."""
    from continual_crust.studies.folder import StudyFolder

    folder = StudyFolder.open(path)
    runs = list(folder.study.runs())
    table = Table(title=Text(folder.study.title), title_justify="left")
    for heading in ("data set", "method", "done", "of", "seconds a run"):
        table.add_column(heading, justify="left" if heading in ("data set", "method") else "right")
    groups: dict[tuple[str, str], list[RunConfig]] = {}
    for config in runs:
        groups.setdefault((config.dataset, config.method), []).append(config)
    for (dataset, method), members in groups.items():
        seconds = [result.seconds for result in map(folder.finished, members) if result is not None]
        mean = f"{statistics.mean(seconds):.1f}" if seconds else "–"
        table.add_row(dataset, method, str(len(seconds)), str(len(members)), mean)
    console.print(table)


@app.command()
def collect(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="FOLDER...", help="Folders of studies, folders of such folders, or folders of collected results."
        ),
    ],
    into: Annotated[Path, typer.Option(help="Folder in which results accumulate.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Let a run that came to another end take the place of the known one.")
    ] = False,
) -> None:
    """Add the finished runs of studies to a folder of results that is kept: a line for each run. Can be repeated."""
    from continual_crust.studies.collected import ADDED, KNOWN, REPLACED
    from continual_crust.studies.collected import collect as collect_runs

    with console.status("collecting"):
        outcome = collect_runs(folders, into, replace)
    told = f"{outcome[ADDED]} added, {outcome[KNOWN]} known already, {outcome[REPLACED]} replaced: "
    console.print(Text.assemble(told, (str(into), "bold")), soft_wrap=True)


@app.command()
def tables(
    page: Annotated[Path, typer.Argument(help="A Markdown page with marked places for tables.")],
    collected: Annotated[Path, typer.Option("--from", help="Folder that `study collect` filled.")],
    figures: Annotated[
        Path | None, typer.Option(help="Also draw what the results say beside the paper's into this folder.")
    ] = None,
) -> None:
    """Write the tables of a page anew from collected results; what lies outside the marked places stays."""
    from continual_crust.report.generated_tables import write_tables
    from continual_crust.report.reproduction_figures import write_figures

    if not collected.is_dir():
        raise InputError(f"there is no folder {collected}; give one that `study collect` filled.")
    if not any(collected.glob("*.json")):
        raise InputError(f"there are no results in {collected}; give a folder that `study collect` filled.")
    if figures is not None and not figures.is_dir():
        raise InputError(f"there is no folder {figures} for figures; make it first.")
    changed = write_tables(page, collected)
    console.print(Text.assemble("written to " if changed else "nothing new for ", (str(page), "bold")), soft_wrap=True)
    if figures is not None:
        for file in write_figures(figures, collected):
            console.print(Text.assemble("drawn as ", (str(file), "bold")), soft_wrap=True)


def _fitting(runs: Iterable[RunConfig], only: str | None) -> list[RunConfig]:
    """The runs whose ids fit a pattern."""
    from continual_crust.studies.study import run_id

    fitting = [config for config in runs if only is None or fnmatchcase(run_id(config), only)]
    if only is not None and not fitting:
        raise InputError(f"no run has an id like '{only}'; ids are DATASET-METHOD-NOISE-LEVEL-kMEMORY-sSEED-HASH.")
    return fitting


def _refuse_without_data(todo: list[RunConfig], folder: Runs, data_root: Path | None, download: bool) -> None:
    """Stop before anything is written where no run can be done for lack of data; where some can, they are."""
    from continual_crust.data import check_dataset

    missing = []
    for name, config in {config.dataset: config for config in todo}.items():
        try:
            check_dataset(name, data_root, download=download, image_size=config.image_size, crop=config.crop)
        except InputError as error:
            missing.append(error)
        else:
            return
    if not missing or any(folder.done_next_door(config) for config in todo):
        return
    for other in missing[:-1]:
        console.print(Text(str(other)), soft_wrap=True)
    raise missing[-1]


def _refuse_other_data(
    runs: list[RunConfig], results: Mapping[str, RunResult], place: str, data_root: Path | None, download: bool
) -> None:
    """Stop where results of other images, by id of their run, would pass for results of these."""
    from continual_crust.studies.study import run_id
    from continual_crust.studies.work import fingerprint_of

    found = [(config, results[run]) for config in runs if (run := run_id(config)) in results]
    for name, config in {config.dataset: config for config, _ in found}.items():
        data = fingerprint_of(config, data_root, download)
        if not all(result.is_of(data) for other, result in found if other.dataset == name):
            raise InputError(f"{place} has results of other images than the '{name}' here; choose another folder.")


def _show_samples(study: Study, text: str, path: Path, data_root: Path | None, download: bool) -> None:
    """A picture of some images of each class, for every data set of the study that can be read."""
    from continual_crust.data import load_dataset
    from continual_crust.report.drawing import save_png
    from continual_crust.report.figures import sample_sheet
    from continual_crust.studies.folder import StudyFolder

    missing = []
    for name in study.datasets:
        try:
            with console.status(f"reading {name}"):
                dataset = load_dataset(name, data_root, download=download)
        except InputError as error:
            missing.append(name)
            console.print(Text(f"{name}: {error}"), soft_wrap=True)
            continue
        picture = StudyFolder.create(path, study, text).path / f"samples-{name}.png"
        save_png(sample_sheet(dataset), picture)
        tell_where("written to ", picture)
    if missing:
        raise InputError(f"{len(missing)} of {len(study.datasets)} data sets could not be read; see above.")


def _engine(
    name: str, workers: int | None, address: str | None, cpus: float | None, gpus: float | None, retries: int | None
) -> Engine:
    """The engine of that name; options that only the other one reads are refused, as who gives one expects it."""
    from continual_crust.errors import unknown_name
    from continual_crust.studies.engines import local_engine, ray_engine

    options: dict[str, dict[str, Any]] = {
        "local": {"workers": workers},
        "ray": {"address": address, "cpus": cpus, "gpus": gpus, "retries": retries},
    }
    if name not in options:
        raise unknown_name("engine", name, options)
    given = {engine: {key: value for key, value in of.items() if value is not None} for engine, of in options.items()}
    for other in given.keys() - {name}:
        for option in given[other]:
            raise InputError(f"--{option} is for --engine {other}; leave it out or choose that engine.")
    return local_engine(workers) if name == "local" else ray_engine(**given["ray"])


def _shard(runs: list[RunConfig], shard: str | None) -> list[RunConfig]:
    if shard is None:
        return runs
    first, _, count = shard.partition("/")
    if not (first.isdigit() and count.isdigit() and 1 <= int(first) <= int(count)):
        raise InputError(f"--shard '{shard}' is not I/N with I from 1 to N; write for example --shard 3/20.")
    # Dealt out method by method: they take turns in a study, so every N-th run may be of the slowest.
    dealt = sorted(range(len(runs)), key=lambda number: (runs[number].dataset, runs[number].method))
    return [runs[number] for number in sorted(dealt[int(first) - 1 :: int(count)])]


def _forecast(folder: StudyFolder, runs: list[RunConfig], todo: list[RunConfig]) -> str:
    """How long the rest should take, from the runs of the same data set and method that are done."""
    known: dict[tuple[str, str], list[float]] = {}
    for config in runs:
        result = folder.finished(config)
        if result is not None:
            known.setdefault((config.dataset, config.method), []).append(result.seconds)
    if not todo:
        return "Nothing is left to do."
    if not known:
        return "How long it takes can be told once a run is done."
    everything = statistics.mean(second for seconds in known.values() for second in seconds)
    seconds = sum(statistics.mean(known.get((c.dataset, c.method), [everything])) for c in todo)
    minutes = round(seconds / 60)
    left = f"About {minutes} minutes" if minutes > 1 else "A minute or so"
    return f"{left} of training is left, from what is done; several workers share it."
