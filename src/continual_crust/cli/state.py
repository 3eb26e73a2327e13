"""The commands `info`, `undo` and `rename`: a learner in a folder, and what was done to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from continual_crust.cli.printing import console, counted, new_table, printable, say, warn
from continual_crust.errors import unknown_name

if TYPE_CHECKING:
    from continual_crust.field.generation import Generation

FORMATS = ("table", "json")


def undo(
    state: Annotated[Path, typer.Argument(metavar="STATE", help="Folder of a learner.")],
) -> None:
    """Take back the last learn, review or rename. Done again, it takes itself back."""
    from continual_crust.field.session import Session
    from continual_crust.field.state import StateFolder

    before, now, notes = Session(StateFolder(state)).undo()
    for note in notes:
        warn(note)
    say(_exchanged(before, now))
    names = [str(entry["name"]) for entry in now.manifest["classes"]]
    say(f"The learner is as it was before, and knows {counted(len(names), 'class', 'classes')}: {', '.join(names)}.")


def _exchanged(before: Generation, now: Generation) -> str:
    """What `undo` has taken back or, done again, put back."""
    old, new, marks = before.manifest["batches"], now.manifest["batches"], before.marks() - now.marks()
    back = (len(old) - len(new), marks) > (0, 0)
    parts = []
    for batch in old[len(new) :] if back else new[len(old) :]:
        source = "" if batch["source"] is None else f" of {batch['source']}"
        label = "" if batch["label"] is None else f" as '{batch['label']}'"
        parts.append(f"{counted(batch['images'], 'image', 'images')}{source}{label}")
    if marks or before.is_marked_otherwise(now):  # an image found late is marked where it moved to alone
        parts.append("a review")
    for one, other in zip(before.manifest["classes"], now.manifest["classes"], strict=False):
        if one["name"] != other["name"]:
            parts.append(f"the name '{one['name']}', which is '{other['name']}' again")
    what = ", ".join(parts) or "a change that brought no images and no marks"
    if len(old) == len(new) and not marks:  # which of both came first cannot be told
        return f"Taken back, or put back: {what}."
    return f"Taken back: {what}." if back else f"Put back: {what}; undo takes back the last step only."


def info(
    state: Annotated[Path, typer.Argument(metavar="STATE", help="Folder of a learner.")],
    form: Annotated[str, typer.Option("--format", help="table or json.")] = "table",
) -> None:
    """Tell what a learner knows, what it keeps and how noisy its images seemed."""
    from continual_crust.field.persistence import noise_from
    from continual_crust.field.settings import Settings
    from continual_crust.field.state import NOT_ENDED, StateFolder

    if form not in FORMATS:
        raise unknown_name("format", form, FORMATS)
    generation = StateFolder(state).newest()
    if lesson := StateFolder(state).unfinished():
        warn(f"{lesson} {NOT_ENDED}.")
    for sentence in generation.passed_over:
        warn(f"{sentence}; this is generation {generation.number}.")
    if form == "json":
        numbers = {name: generation.manifest[name] for name in ("classes", "batches")}
        print(json.dumps({"generation": generation.number, **numbers}, indent=1))
        return
    settings, size = Settings.from_dict(generation.manifest["settings"]), generation.size()
    table = new_table("class", "images seen", "kept", "look wrong", "wrong labels, estimated", "in batch")
    told = set()
    for entry in generation.manifest["classes"]:
        noise = noise_from(entry["noise"])
        counts = (str(entry[name]) for name in ("seen", "kept", "looks_wrong"))
        batch = None if noise is None else entry.get("noise_batch")
        told |= set() if batch is None else {batch}
        estimate = "–" if noise is None else str(noise)
        table.add_row(Text(printable(str(entry["name"]))), *counts, estimate, "–" if batch is None else str(batch + 1))
    console.print(table)
    for batch in sorted(told):
        if source := generation.manifest["batches"][batch]["source"]:
            console.print(Text(printable(f"batch {batch + 1}: {source}")), style="dim", highlight=False, soft_wrap=True)
    kind = "colour" if settings.channels == 3 else "grey"
    console.print(
        f"{settings.model_name()}, {settings.width}×{settings.height} pixels in {kind}, {settings.selector} keeps up "
        f"to {settings.memory_per_class} images of a class; generation {generation.number}, {size / 1e6:.1f} MB",
        style="dim",
        highlight=False,
        soft_wrap=True,
    )


def rename(
    state: Annotated[Path, typer.Argument(metavar="STATE", help="Folder of a learner.")],
    old: Annotated[str, typer.Argument(metavar="CLASS", help="The class as it is called now.")],
    new: Annotated[str, typer.Argument(metavar="NAME", help="What to call it; no other class may be called so.")],
) -> None:
    """Give a class another name. What was learned stays; a folder of the old name would be a new class."""
    from continual_crust.field.session import Session
    from continual_crust.field.state import StateFolder

    for note in Session(StateFolder(state)).rename(old, new):
        warn(note)
    say(f"'{old}' is called '{new.strip()}' now.")
