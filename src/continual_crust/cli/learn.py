"""The commands for people with their own images: ``continual-crust learn`` and ``predict``."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from continual_crust.cli.printing import console, counted, new_table, printable, say, warn
from continual_crust.errors import InputError, first_few, unknown_name
from continual_crust.progress import OnProgress, unwatched

if TYPE_CHECKING:
    from continual_crust.field.folder import Skipped
    from continual_crust.field.session import Outcome

FIRST = "Chosen when STATE is made"
SHOWN = 10
"""Lines of a list that are printed."""
FORMATS = ("table", "csv", "json")


def learn(
    state: Annotated[Path, typer.Argument(metavar="STATE", help="Folder the learner is kept in; made on first use.")],
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="Class folders; or images of one class, with --label.", show_default=False),
    ] = None,
    label: Annotated[str | None, typer.Option(help="All images in DIR were given this one class.")] = None,
    review: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Marks from `continual-crust review`, applied before DIR.")
    ] = None,
    memory: Annotated[
        int | None, typer.Option("--memory", "-k", help="Images kept for each class: 60.", rich_help_panel=FIRST)
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="simple_cnn, resnet18, resnet18_strided or efficientnet_v2_s; by the size of the images.",
            rich_help_panel=FIRST,
        ),
    ] = None,
    pretrained: Annotated[
        bool, typer.Option("--pretrained", help="Start from torchvision's weights.", rich_help_panel=FIRST)
    ] = False,
    image_size: Annotated[
        int | None,
        typer.Option(
            help="Side of the images in pixels; their most common size, at most 128.", rich_help_panel=FIRST, min=6
        ),
    ] = None,
    crop: Annotated[
        bool, typer.Option("--crop", help="Cut images to their size around the centre.", rich_help_panel=FIRST)
    ] = False,
    selector: Annotated[
        str | None,
        typer.Option(
            help="What chooses the memory among what looks right: random, crust, cosine_crust, herding or reservoir.",
            rich_help_panel=FIRST,
        ),
    ] = None,
    phase1_epochs: Annotated[
        int | None,
        typer.Option(
            "--phase1-epochs",
            "-m",
            help="Epochs on new images: a fifth on all, then on what looks right.",
            rich_help_panel=FIRST,
            min=1,
        ),
    ] = None,
    phase2_epochs: Annotated[
        int | None,
        typer.Option("--phase2-epochs", "-n", help="Epochs on what is kept.", rich_help_panel=FIRST, min=1),
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Adam's learning rate.", rich_help_panel=FIRST)] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images in a step.", rich_help_panel=FIRST)] = None,
    seed: Annotated[int | None, typer.Option(help="Decides everything random: 0.", rich_help_panel=FIRST)] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    cache_size: Annotated[
        float, typer.Option(help="GiB of disk in STATE for decoded images, while learning.", min=0.001, max=1e6)
    ] = 8.0,
    checkpoint: Annotated[
        float, typer.Option(help="Seconds of training that may be lost when it is stopped.", min=0)
    ] = 30.0,
) -> None:
    """Learn your own images into the learner kept in STATE: new classes, or more images of known ones.

    Prints what was kept, what looks mislabelled and how noisy the images seem.

    Stopped at any moment, the same command goes on where it was.
    """
    from continual_crust.field.session import Session
    from continual_crust.field.state import StateFolder

    if folder is None and review is None:
        raise InputError("learn needs a folder of images or --review FILE; for example: learn STATE photos.")
    if folder is None and label is not None:
        raise InputError("--label is for the images of a folder; give that folder as well.")
    given: dict[str, Any] = {
        "memory_per_class": memory,
        "model": model,
        "pretrained": pretrained or None,
        "crop": crop or None,
        "selector": selector,
        "phase1_epochs": phase1_epochs,
        "phase2_epochs": phase2_epochs,
        "learning_rate": lr,
        "batch_size": batch_size,
        "seed": seed,
    }
    asked = {name: value for name, value in given.items() if value is not None}

    # What both make together is one step to take back.
    before = StateFolder(state).newest().number if review is not None and folder is not None else None

    def session(advance: OnProgress) -> Session:
        return Session(StateFolder(state), device, int(cache_size * (1 << 30)), advance, checkpoint, before)

    if review is not None:
        # What is wrong with the folder or the options is said before the review changes anything.
        session(unwatched).check(folder, label, asked, image_size)
        with _bar() as advance:
            reviewed = session(advance).apply_review(review)
        _print_reviewed(reviewed)
    if folder is not None:
        with _bar() as advance:
            learned = session(advance).learn_folder(folder, label, asked, image_size)
        _print_learned(learned, state)


def predict(
    state: Annotated[Path, typer.Argument(metavar="STATE", help="Folder of a learner.")],
    images: Annotated[list[Path], typer.Argument(metavar="IMAGES…", help="Image files, or folders of them.")],
    form: Annotated[str, typer.Option("--format", help="table, csv or json.")] = "table",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Tell the class of images, and how sure the learner is. Ends with 1 if some files could not be read."""
    from continual_crust.field.predictions import Prediction, predictions

    if form not in FORMATS:
        raise unknown_name("format", form, FORMATS)
    found: list[Prediction] = []
    skipped: list[Skipped] = []
    with _bar() as advance:
        for part in predictions(state, images, device, advance, skipped, warn):
            found += part
    if not found:
        _print_skipped(skipped, warn)
        reason = "none of the files could be read as an image; see above" if skipped else "there is no file to predict"
        raise InputError(f"{reason}.")
    if form == "json":
        rows = [{"file": one.file, "class": one.label, "probability": round(one.probability, 6)} for one in found]
        print(json.dumps(rows, indent=1))
    elif form == "csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["file", "class", "probability"])
        writer.writerows([one.file, one.label, f"{one.probability:.6f}"] for one in found)
        print(text.getvalue(), end="")
    else:
        table = new_table("file", "class", "probability")
        for one in found:
            table.add_row(Text(printable(one.file)), Text(printable(str(one.label))), f"{one.probability:.1%}")
        console.print(table)
    _print_skipped(skipped, warn, SHOWN if form == "table" else len(skipped))
    if skipped:
        raise typer.Exit(1)


def _print_learned(outcome: Outcome, state: Path) -> None:
    for note in outcome.notes:
        warn(note)
    if outcome.reports:
        table = new_table("class", "new images", "kept", "look wrong", "wrong labels, estimated")
        for report in outcome.reports:
            numbers = (str(number) for number in (report.images, report.kept, len(report.doubts)))
            noise = "too few to say" if report.noise is None else str(report.noise)
            table.add_row(Text(printable(str(report.label))), *numbers, noise)
        console.print(table)
        for report in outcome.reports:
            _print_doubts(report.label, report.doubts, state)
            if report.second:
                say(
                    f"What seems right of '{report.label}' is of two kinds, the smaller {report.second:.0%} of it: two "
                    "styles of one class, or a class that is not known yet. Have a look at what is kept."
                )
    if outcome.known:
        say(f"{_images(outcome.known)} known already or there twice, and not learned again.")
    if not outcome.reports:
        say("Nothing new to learn.")
    _print_skipped(outcome.skipped, say)


def _print_doubts(label: object, doubts: Sequence[Any], state: Path) -> None:
    if not doubts:
        return
    say(f"May not be '{label}', most doubtful first:")
    for doubt in doubts[:SHOWN]:
        likely = doubt.other is not None and doubt.other_probability >= 0.5
        instead = f"rather '{doubt.other}' ({doubt.other_probability:.0%})" if likely else "unlike the others"
        say(f"  {doubt.name}  label right: {doubt.score:.0%}; {instead}")
    if len(doubts) > SHOWN:
        command = f"continual-crust review {shlex.quote(str(state))}"
        say(f"  … and {len(doubts) - SHOWN} more; see them with: {command}")


def _print_reviewed(outcome: Outcome) -> None:
    for note in outcome.notes:
        warn(note)
    if outcome.marked:
        marks, classes = counted(outcome.marked, "mark", "marks"), counted(len(outcome.reports), "class", "classes")
        say(f"{marks} applied, {classes} learned anew.")
    else:
        say("The review says nothing new.")
    gone = [(name, folder) for name, folder in outcome.unreachable if folder is not None]
    if gone:
        names, folders = first_few([name for name, _ in gone], 3), list(dict.fromkeys(folder for _, folder in gone))
        place = folders[0] if len(folders) == 1 else f"one of the folders {first_few(folders, 3)}"
        it, stays = ("it", "stays") if len(gone) == 1 else ("they", "stay")
        say(
            f"{_images(len(gone))} no longer where {it} came from, so {it} {stays} out: {names}. If {place} was "
            "moved, learn it from its new place first."
        )
    if of_arrays := [name for name, folder in outcome.unreachable if folder is None]:
        names, them = first_few(of_arrays, 3), "it" if len(of_arrays) == 1 else "them"
        say(
            f"{_images(len(of_arrays))} not kept and came from Python, so there is no file to take {them} from: "
            f"{names}."
        )


def _print_skipped(skipped: Sequence[Skipped], tell: Callable[[str], None], most: int = SHOWN) -> None:
    if not skipped:
        return
    tell("1 file skipped:" if len(skipped) == 1 else f"{len(skipped)} files skipped:")
    for one in skipped[:most]:
        tell(f"  {one.why}")
    if len(skipped) > most:
        tell(f"  … and {len(skipped) - most} more.")


def _images(count: int) -> str:
    return counted(count, "image is", "images are")


@contextmanager
def _bar() -> Iterator[OnProgress]:
    """A bar for each thing that is done, which counts real work: files read, images trained on."""
    from continual_crust.progress import progress_bar

    with progress_bar(Console(stderr=True)) as bar:
        tasks: dict[str, Any] = {}

        def advance(what: str, done: int, total: int) -> None:
            if what not in tasks:
                for task in tasks.values():
                    bar.update(task, visible=False)
                tasks[what] = bar.add_task(what)
            bar.update(tasks[what], completed=done, total=total, visible=True)

        yield advance
