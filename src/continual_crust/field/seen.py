"""What is remembered about every image that was ever given as one class, whether it was kept or not.

The images themselves are not needed again; this is what a person needs to look over the learner's shoulder, and what
`continual-crust review` shows. One file for each class (see `state`), with one entry for each image in every column:

| column | type | meaning |
| --- | --- | --- |
| `names`, `name_ends` | U8, I64 | file names, UTF-8, one after another; `name_ends[i]` is where the i-th stops |
| `repeat` | I32 | 1; or 2, 3, … where the class already had an image of that name, as from another folder |
| `batch` | I32 | which call of `learn` brought it; index into the manifest's `batches` |
| `kept` | BOOL | whether it is in the memory now |
| `score` | F32 | how likely the given label is right, 0 to 1; 1 for what a person marked as right |
| `other` | I32 | the class the learner would give instead, as an index into the manifest's `classes`; -1 if none |
| `other_probability` | F32 | the learner's probability of that class |
| `mark` | U8 | a person's word: 0 none, 1 right, 2 wrong, 3 other (belongs to another class) |
| `digest` | U8 (n, 16) | of the decoded pixels: tells the same image from one of the same name |
| `thumbnails`, `thumbnail_ends` | U8, I64 | JPEG files of at most 48 pixels a side, laid out as the names are |

Scores, other classes and probabilities are those of the moment at which the image was last looked at: when its batch
was learned or, for kept ones, when its class was last learned again, or other classes made them look wrong.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from continual_crust.data.loading import Bytes
from continual_crust.tensor_file import NotATensorFile

THUMBNAIL_SIDE = 48
"""Images are shrunk to this for looking at; smaller ones stay as they are."""
FAINT = 64
"""Images that use fewer of 256 shades together are hard to see as they are."""
LIKELY = 0.5
"""A label whose score is below this looks wrong."""
NO_MARK, RIGHT, WRONG, OTHER = range(4)
"""What a person said about an image."""
MARKS = {"right": RIGHT, "wrong": WRONG, "other": OTHER}
"""The same as words, as in a review file."""
_DIGEST_BYTES = 16


@dataclass
class Seen:
    """All images ever given as one class, in the order in which they came."""

    files: list[str]
    """Names as they were given, relative to the folder; bytes that are no UTF-8 appear as ``\\xNN``."""
    repeat: NDArray[np.int32]
    batch: NDArray[np.int32]
    kept: NDArray[np.bool_]
    score: NDArray[np.float32]
    other: NDArray[np.int32]
    other_probability: NDArray[np.float32]
    mark: NDArray[np.uint8]
    digest: NDArray[np.uint8]
    thumbnails: list[bytes]
    """A JPEG file for each image."""

    @classmethod
    def nothing(cls) -> Seen:
        """A class of which no image was seen yet."""
        return cls.of([], [], np.zeros((0, _DIGEST_BYTES), np.uint8), batch=0)

    @classmethod
    def of(cls, files: Sequence[str], thumbnails: Sequence[bytes], digests: NDArray[np.uint8], batch: int) -> Seen:
        """Images that have just come in and of which nothing is known yet."""
        count = len(files)
        return cls(
            files=list(files),
            repeat=np.ones(count, np.int32),
            batch=np.full(count, batch, np.int32),
            kept=np.zeros(count, np.bool_),
            score=np.ones(count, np.float32),
            other=np.full(count, -1, np.int32),
            other_probability=np.zeros(count, np.float32),
            mark=np.zeros(count, np.uint8),
            digest=digests,
            thumbnails=list(thumbnails),
        )

    def __len__(self) -> int:
        return len(self.files)

    def names(self) -> list[str]:
        """What each image is called on screen and in a review file: unique within the class."""
        return [_called(file, again) for file, again in zip(self.files, self.repeat.tolist(), strict=True)]

    def looks_wrong(self) -> NDArray[np.bool_]:
        """Images whose label is more likely wrong than right, and about which nobody has said anything."""
        doubtful: NDArray[np.bool_] = (self.score < LIKELY) & (self.mark == NO_MARK)
        return doubtful

    def digests(self) -> set[bytes]:
        """The digests of all images, to tell which ones are new."""
        return {row.tobytes() for row in self.digest}

    def extended(self, more: Seen) -> Seen:
        """These images and then `more`, whose names get a number where they are taken."""
        taken, counts, repeat = set(self.names()), dict[str, int](), []
        for file in more.files:
            again = counts.get(file, 0) + 1
            # A file may really be called 'a.png (2)', so counting alone could meet a name that is taken.
            while (name := _called(file, again)) in taken:
                again += 1
            counts[file] = again
            taken.add(name)
            repeat.append(again)
        more = replace(more, repeat=np.array(repeat, np.int32))
        joined: dict[str, Any] = {}
        for field in fields(self):
            ours, theirs = getattr(self, field.name), getattr(more, field.name)
            joined[field.name] = ours + theirs if isinstance(ours, list) else np.concatenate([ours, theirs])
        return Seen(**joined)

    def tensors(self) -> dict[str, Tensor]:
        """The columns as they go to a file."""
        names, name_ends = _laid_out([file.encode() for file in self.files])
        thumbnails, thumbnail_ends = _laid_out(self.thumbnails)
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        del columns["files"], columns["thumbnails"]
        plain = {name: torch.from_numpy(np.ascontiguousarray(column)) for name, column in columns.items()}
        return plain | {
            "names": names,
            "name_ends": name_ends,
            "thumbnails": thumbnails,
            "thumbnail_ends": thumbnail_ends,
        }

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> Seen:
        """What :meth:`tensors` gave, checked: it may come from a file that was tampered with."""
        try:
            columns = {name: tensors[name] for name in _COLUMNS}
            count = len(columns["repeat"])
            for name, (dtype, width) in _COLUMNS.items():
                wanted = (count,) if width is None else (count, width)
                if columns[name].dtype != dtype or columns[name].shape != wanted:
                    raise NotATensorFile(f"its column '{name}' has another form")
            files = [name.decode() for name in _taken_apart(tensors["names"], tensors["name_ends"], count)]
            thumbnails = _taken_apart(tensors["thumbnails"], tensors["thumbnail_ends"], count)
        except KeyError as error:
            raise NotATensorFile(f"it has no column {error}") from None
        except UnicodeDecodeError:
            raise NotATensorFile("a file name in it is not UTF-8") from None
        if bool((columns["mark"] > OTHER).any()) or bool((columns["repeat"] < 1).any()):
            raise NotATensorFile("it holds marks or numbers that do not exist")
        return cls(files=files, thumbnails=thumbnails, **{name: column.numpy() for name, column in columns.items()})


_COLUMNS: dict[str, tuple[torch.dtype, int | None]] = {
    "repeat": (torch.int32, None),
    "batch": (torch.int32, None),
    "kept": (torch.bool, None),
    "score": (torch.float32, None),
    "other": (torch.int32, None),
    "other_probability": (torch.float32, None),
    "mark": (torch.uint8, None),
    "digest": (torch.uint8, _DIGEST_BYTES),
}


def _called(file: str, again: int) -> str:
    return file if again == 1 else f"{file} ({again})"


def _laid_out(pieces: Sequence[bytes]) -> tuple[Tensor, Tensor]:
    together = np.frombuffer(b"".join(pieces), np.uint8).copy()
    return torch.from_numpy(together), torch.from_numpy(np.cumsum([len(piece) for piece in pieces], dtype=np.int64))


def _taken_apart(together: Tensor, ends: Tensor, count: int) -> list[bytes]:
    if together.dtype != torch.uint8 or together.ndim != 1 or ends.dtype != torch.int64 or ends.shape != (count,):
        raise NotATensorFile("its texts or pictures have another form")
    stops = ends.tolist()
    starts = [0, *stops[:-1]] if stops else []
    if any(start > stop for start, stop in zip(starts, stops, strict=True)) or (stops[-1] if stops else 0) != len(
        together
    ):
        raise NotATensorFile("its texts or pictures do not lie one after another")
    content = together.numpy().tobytes()
    return [content[start:stop] for start, stop in zip(starts, stops, strict=True)]


def digest_of(image: Bytes) -> NDArray[np.uint8]:
    """A short fingerprint of an image's shape and pixels."""
    hashed = hashlib.blake2b(repr(image.shape).encode(), digest_size=_DIGEST_BYTES)
    hashed.update(np.ascontiguousarray(image).data)
    return np.frombuffer(hashed.digest(), np.uint8)


def thumbnails_of(images: Bytes) -> list[bytes]:
    """Images of shape (n, channels, height, width) as small JPEG files, brightened alike if all are dark or pale."""
    black, white = (int(images.min()), int(images.max())) if images.size else (0, 0)
    if not 0 < white - black < FAINT:
        return [thumbnail_of(image) for image in images]
    shades = ((np.arange(256).clip(black, white) - black) * (255 / (white - black))).round().astype(np.uint8)
    return [thumbnail_of(shades[image]) for image in images]


def thumbnail_of(image: Bytes) -> bytes:
    """An image of shape (channels, height, width) as a small JPEG file."""
    import PIL.Image

    pixels = image[0] if image.shape[0] < 3 else image[:3].transpose(1, 2, 0)
    picture = PIL.Image.fromarray(np.ascontiguousarray(pixels))
    picture.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE), PIL.Image.Resampling.BOX)
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=85)
    return file.getvalue()


def replaced(items: list[Any], index: int, item: Any) -> list[Any]:
    """A list with another item in one place; the old list stays as it is."""
    return [*items[:index], item, *items[index + 1 :]]
