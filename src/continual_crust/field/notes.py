"""Notes on a lesson for a person, beside what was learned.

Each function returns the sentences about one thing, or none where there is nothing to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from continual_crust.data.folder import visible
from continual_crust.data.images import survey, used_depth
from continual_crust.data.loading import Bytes
from continual_crust.errors import first_few
from continual_crust.field.core import FieldLearner
from continual_crust.field.folder import DecodedFiles, Form, ImageFile, class_name, shown
from continual_crust.field.inputs import Label
from continual_crust.field.rows import Rows
from continual_crust.field.seen import NO_MARK, RIGHT

SHOWN = 5
"""Names in a sentence."""
IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"}
"""Of files that were likely meant to be learned."""
LEAST_CONTRAST = 1 / 12
"""Images that use a smaller part than this of what a learner sees are nearly flat to it."""
OTHER_SCALE = 4
"""Images with so many times the contrast of nearly flat ones that were learned are no others like these."""

OF_EACH = 20
"""Images of a class whose size is looked at."""
ASKED_ABOUT, FEWEST = 200, 8
"""Images of a class on which the learner is asked before it learns them, at most and at least."""
SURE, NEARLY_ALL = 0.9, 0.9
"""With less, classes that are really new would be taken for slips: they too look like something known."""


def lost_to_the_form(paths: Sequence[Path], form: Form) -> list[str]:
    """About what a learner of this form does not see of images, judged by a few dozen of them."""
    some = paths[:: -(-len(paths) // 50) or 1]
    headers = survey(some)
    notes = []
    if form.channels == 1 and any(header.colour for header in headers):
        notes.append("some images are in colour; this learner began with grey ones and sees them in grey.")
    deep = [path for path, header in zip(some, headers, strict=True) if header.deep]
    low, high = used_depth(deep)
    black, white = form.depth
    if deep and (low < black or high > white or high - low < LEAST_CONTRAST * (white - black)):
        notes.append(
            f"images of 16 bits go from {low} to {high}, and this learner sees {black} to {white}, by what it began "
            "with; what lies outside is cut off, and little contrast may be left."
        )
    return notes


def filled_up(paths: Sequence[Path], form: Form) -> list[str]:
    """About images that are smaller than what is cut out of them, judged by a few dozen of them."""
    some = survey(paths[:: -(-len(paths) // 50) or 1]) if form.crop else []
    if not any(header.width < form.width or header.height < form.height for header in some):
        return []
    return [
        f"some images are smaller than the {form.width}×{form.height} pixels that this learner cuts out, and get a "
        "black border, which may give their class away; enlarge them, or start another STATE with a smaller "
        "--image-size."
    ]


def sizes_of_their_own(files: Sequence[ImageFile], form: Form) -> list[str]:
    """About classes whose images have a size that no other class has, judged by a few of each: scaling shows it."""
    paths: dict[str, list[Path]] = {}
    for file in files:
        paths.setdefault(file.label, []).append(file.path)
    if form.crop or len(paths) < 2:
        return []
    sizes = {
        label: Counter((header.width, header.height) for header in survey(own[:: -(-len(own) // OF_EACH)]))
        for label, own in paths.items()
    }
    found = []
    for label, own in sizes.items():
        (size, count), total = own.most_common(1)[0], own.total()
        elsewhere = any(size in others for other, others in sizes.items() if other != label)
        if not elsewhere and total >= FEWEST and count >= NEARLY_ALL * total:
            found.append(f"'{label}' ({size[0]}×{size[1]})")
    if not found:
        return []
    has, their = ("has", "its") if len(found) == 1 else ("have", "their")
    return [
        f"{first_few(found, SHOWN)} {has} a size in pixels that no other class has; scaled to one size, {their} images "
        "may be known by that alone. If it is no sign of the class, begin anew with another STATE and --crop."
    ]


def larger_than_the_cache(images: DecodedFiles) -> list[str]:
    """About images for which there was no room in the cache."""
    if not images.decoded_each_time:
        return []
    return [
        f"{images.decoded_each_time} images do not fit the cache and are decoded each time; a larger --cache-size "
        "would be faster."
    ]


def empty_class_folders(folder: Path, files: Sequence[ImageFile], apart_from: Path) -> list[str]:
    """About class folders in which there is no file; a folder that holds `apart_from` is no class folder."""
    state = apart_from.resolve()
    folders = [entry for entry in visible(folder) if entry.is_dir() and not state.is_relative_to(entry.resolve())]
    empty = sorted({class_name(entry.name) for entry in folders} - {file.label for file in files})
    return [f"there is no file in {first_few(empty, 3)}: no such class."] if empty else []


def images_in_no_class_folder(folder: Path) -> list[str]:
    """About images that lie beside the class folders."""
    stray = sum(entry.suffix.lower() in IMAGE_SUFFIXES and not entry.is_dir() for entry in visible(folder))
    if not stray:
        return []
    lie, were, them = ("image lies", "was", "it") if stray == 1 else ("images lie", "were", "them")
    return [f"{stray} {lie} in {folder} itself, in no class folder, and {were} skipped; put {them} into one."]


def nearly_flat(images: Rows) -> list[str]:
    """About images in which hardly anything can be seen, judged by a few dozen of them."""
    low, high = _extremes(images)
    if not _is_flat(low, high):
        return []
    return [
        f"all images lie between {low} and {high} where 0 is black and 255 white: they are nearly flat, and there is "
        "little to learn from; save them with more contrast, if there is any."
    ]


def on_another_scale(kept: Iterable[Bytes], images: Rows) -> list[str]:
    """About images as they usually are, for a learner that keeps nearly flat ones: it began with other numbers."""
    spans = [(int(some.min()), int(some.max())) for some in kept if len(some)]
    if not spans:
        return []
    black, white = min(low for low, _ in spans), max(high for _, high in spans)
    low, high = _extremes(images)
    if not _is_flat(black, white) or high - low < OTHER_SCALE * (white - black):
        return []
    return [
        f"images go from {low} to {high} where 0 is black and 255 white, and those that this learner keeps from "
        f"{black} to {white}: it began with another scale, and what it makes of these means little; give it images "
        "of its own scale, or start another STATE."
    ]


def _extremes(images: Rows) -> tuple[int, int]:
    """The darkest and the brightest pixel of a few dozen images."""
    # One at a time: they may be large.
    extremes = [images.take(one).aminmax() for one in torch.arange(0, len(images), -(-len(images) // 50)).split(1)]
    return min(int(pair.min) for pair in extremes), max(int(pair.max) for pair in extremes)


def _is_flat(low: int, high: int) -> bool:
    return high - low < LEAST_CONTRAST * 255


def only_the_first(several: int) -> list[str]:
    """About files with more than one image."""
    if not several:
        return []
    hold = "1 file holds" if several == 1 else f"{several} files hold"
    return [f"{hold} several images; only the first of each was used."]


def nothing_to_compare_with(learner: FieldLearner) -> list[str]:
    """About a first class that came alone, where some of it looks wrong."""
    if len(learner.labels) > 1 or not learner.seen[0].looks_wrong().any():
        return []
    return [
        f"'{learner.labels[0]}' is the only class so far, with nothing to compare it with: many of its right images "
        "may look wrong until others are learned."
    ]


def second_thoughts(learner: FieldLearner) -> list[str]:
    """About images of other classes that the lesson has made look wrong."""
    notes = []
    for counts, what, then in (
        (learner.let_go, "was kept looks wrong and is forgotten", "undo takes that back"),
        (learner.second_thoughts, "is kept looks wrong", "have a look in a review"),
    ):
        if counts:
            classes = first_few([f"{count} of '{label}'" for label, count in counts.items()], SHOWN)
            notes.append(f"now that more is known, some of what {what}: {classes}; {then}.")
    return notes


def made_by_a_review(learner: FieldLearner, made: Sequence[Label]) -> list[str]:
    """About classes that were not known before."""
    notes = []
    for label in made:
        count, name = len(learner.seen[learner.index_of(label)]), str(label)
        near = [str(other) for other in learner.labels if other != label and str(other).casefold() == name.casefold()]
        beside = f" beside '{near[0]}'" if near else ""
        advice = "if that was a slip, take it back with undo" if near else "learn more of it where you can"
        notes.append(f"'{name}' is a new class{beside}, of {count} {'image' if count == 1 else 'images'}; {advice}.")
    return notes


def too_many_right(learner: FieldLearner) -> list[str]:
    """About classes of which more was called right than can be kept."""
    notes = []
    for label, seen in zip(learner.labels, learner.seen, strict=True):
        right = int((seen.mark == RIGHT).sum())
        if right > learner.settings.memory_per_class:
            notes.append(
                f"{right} images of '{label}' are marked right and {learner.settings.memory_per_class} of them kept, "
                "as many as the memory holds; a new STATE can have a larger --memory."
            )
    return notes


def nearly_known_names(learner: FieldLearner, files: Sequence[ImageFile]) -> list[str]:
    """About new classes whose names differ from another's, known or new, in case alone, which may be a slip."""
    known = [str(label) for label in learner.labels]
    called = {name.casefold(): name for name in known}
    notes = []
    for label in dict.fromkeys(file.label for file in files):
        other = called.setdefault(label.casefold(), label)
        if label not in known and label != other:
            notes.append(f"'{label}' is a new class beside '{other}'; if that was a slip, {_way_back(learner)}.")
    return notes


def _way_back(learner: FieldLearner) -> str:
    """What to do about a lesson that should not have been; before the first one there is nothing to go back to."""
    return "take it back with undo" if learner.labels else "begin anew with another STATE"


def folders_of_known_classes(learner: FieldLearner, folder: Path, label: str) -> list[str]:
    """About class folders that are all learned as one class."""
    known = {class_name(str(one)) for one in learner.labels} - {class_name(label)}
    found = [name for entry in visible(folder) if entry.is_dir() and (name := class_name(entry.name)) in known]
    if not found:
        return []
    names = first_few(found, SHOWN)
    return [f"{folder} has folders named after known classes ({names}); without --label they are learned as those."]


def classes_one_folder_deeper(learner: FieldLearner, folder: Path, files: Sequence[ImageFile]) -> list[str]:
    """About class folders that seem to hold class folders, as where a folder above the right one was given.

    Nothing is said of a known class's folders: they may be days or cameras.
    """
    parts = [(file.path.relative_to(folder).parts, file.label) for file in files]
    known = {class_name(str(one)) for one in learner.labels}
    first = not known and all(len(steps) > 2 for steps, _ in parts)
    inner = [
        Path(*steps[:2])
        for steps, label in parts
        if len(steps) > 2 and label not in known and (first or class_name(steps[1]) in known)
    ]
    if not inner:
        return []
    found = list(dict.fromkeys(map(shown, inner)))
    names = first_few(found, SHOWN)
    return [
        f"images lie in folders inside class folders ({names}); if those are the classes, {_way_back(learner)}, and "
        f"give {shown(folder / inner[0].parent)} instead."
    ]


def taken_for_another_class(learner: FieldLearner, rows: Rows, labels: Sequence[Label]) -> list[str]:
    """About classes whose new images the learner, before it learns them, is sure to be of another class."""
    if learner.strategy is None or len(learner.labels) < 2:
        return []
    notes, positions = [], dict[Label, list[int]]()
    for at, label in enumerate(labels):
        positions.setdefault(label, []).append(at)
    for label, own in positions.items():
        some = own[:: -(-len(own) // ASKED_ABOUT)]
        best = learner.strategy.judge.logits(rows, torch.tensor(some)).softmax(dim=1).max(dim=1)
        called = Counter(best.indices[best.values >= SURE].tolist()).most_common(1)
        other, count = called[0] if called else (0, 0)
        if learner.labels[other] != label and count >= NEARLY_ALL * len(some) and len(some) >= FEWEST:
            notes.append(
                f"before this lesson the learner was sure that {count} of {len(some)} new images of '{label}' are "
                f"'{learner.labels[other]}'; if the label was a slip, take it back with undo."
            )
    return notes


def contradictions(
    learner: FieldLearner, files: Sequence[ImageFile], digests: NDArray[np.uint8], new: NDArray[np.int64]
) -> list[str]:
    """About new images that equal one of another class pixel by pixel, from before or from the same folder."""
    classes: dict[bytes, str] = {}
    for label, seen in zip(learner.labels, learner.seen, strict=True):
        for row in np.flatnonzero(np.isin(seen.mark, (NO_MARK, RIGHT))).tolist():
            classes.setdefault(seen.digest[row].tobytes(), str(label))
    found = []
    for at in new.tolist():
        other = classes.setdefault(digests[at].tobytes(), files[at].label)
        if other != files[at].label:
            found.append(f"{files[at].name} ('{other}')")
    if not found:
        return []
    count = "1 image is" if len(found) == 1 else f"{len(found)} images are"
    names = first_few(found, SHOWN)
    return [
        f"{count} also in another class, pixel by pixel, and cannot be both; say which is wrong in a review: {names}."
    ]
