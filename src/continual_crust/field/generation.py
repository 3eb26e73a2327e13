"""One complete state of a learner: a folder of files with their checksums.

`manifest.json`::

    {
      "format": "continual-crust state",
      "version": 1,
      "settings": {...},              `continual_crust.field.settings`: what was asked for, and the images' shape
      "classes": [                    in the order in which they were learned; position = index used everywhere
        {"name": "cat", "seen": 120, "kept": 25, "looks_wrong": 31,
         "noise": {"estimate": 0.26, "low": 0.19, "high": 0.34},     share of wrong labels in its last large batch
         "noise_batch": 0}                                           which one that was; older states do not say
      ],
      "batches": [                    one for each `learn`
        {"source": "/home/me/photos", "label": null, "images": 240, "skipped": 2, "classes": ["cat", "dog"]}
      ]
    }

A class name is a text or a whole number, as the labels were given. `source` is the folder the files of that batch are
relative to, or null where arrays were given; `label` is `--label`. `kept` and `seen` count rows of the class's
``seen`` file; `looks_wrong` those whose score is below one half and that nobody marked.

For a page that shows all this::

    state = StateFolder(path).newest()
    for index, entry in enumerate(state.manifest["classes"]):
        seen = state.seen(index)
        for name, kept, score, other, thumbnail in zip(
            seen.names(), seen.kept, seen.score, seen.other, seen.thumbnails
        ): ...

Marks come back as a CSV file with the columns ``file,class,mark,new_class``: a name from ``seen.names()``, the class's
name, ``right``, ``wrong``, ``other`` or ``new``, and for these two the class it belongs to.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from continual_crust.errors import InputError
from continual_crust.field.seen import NO_MARK, Seen
from continual_crust.tensor_file import NotATensorFile, unpack

FORMAT, VERSION = "continual-crust state", 1
SUMS = "SHA256SUMS"
_NOISE = ("estimate", "low", "high")
_SUM_LINE = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9._-]+)")


class Damaged(ValueError):
    """A generation is not as it was written; says why."""


@dataclass(frozen=True)
class Generation:
    """One complete state of a learner. Files are checked against their checksums whenever they are read."""

    path: Path
    manifest: dict[str, Any]
    checksums: Mapping[str, str]
    passed_over: tuple[str, ...] = field(default=())
    """One sentence for each newer generation that is damaged."""

    @property
    def number(self) -> int:
        """Counts up with every `learn`."""
        return int(self.path.name)

    def tensors(self, name: str) -> dict[str, Tensor]:
        """The arrays in one of its files."""
        try:
            return unpack(_checked(self.path, name, self.checksums))
        except NotATensorFile as error:
            raise Damaged(f"{name} is not a file of arrays: {error}") from None

    def seen(self, index: int) -> Seen:
        """Every image ever given as the class of this index."""
        name = seen_file(index)
        try:
            return Seen.from_tensors(self.tensors(name))
        except NotATensorFile as error:
            raise Damaged(f"{name} is no record of images: {error}") from None

    def files(self) -> dict[str, bytes]:
        """The content of all its files, by name."""
        return {name: _checked(self.path, name, self.checksums) for name in self.checksums}

    def size(self) -> int:
        """Bytes on the disk."""
        try:
            return sum((self.path / name).stat().st_size for name in (*self.checksums, SUMS))
        except OSError as error:
            raise _unreadable(self.path, SUMS, error) from None

    def marks(self) -> int:
        """How many entries people have said something about."""
        return sum(int((self.seen(index).mark != NO_MARK).sum()) for index in range(len(self.manifest["classes"])))

    def is_marked_otherwise(self, other: Generation) -> bool:
        """Whether people have said something else in another generation about the images that both know."""
        classes = min(len(self.manifest["classes"]), len(other.manifest["classes"]))
        pairs = ((self.seen(index).mark, other.seen(index).mark) for index in range(classes))
        return any((one[: len(two)] != two[: len(one)]).any() for one, two in pairs)

    @classmethod
    def read(cls, path: Path) -> Generation:
        """Open a generation, checking every file in it; raises `Damaged`."""
        try:
            sums = _parsed_sums((path / SUMS).read_bytes())
        except OSError as error:
            raise _unreadable(path, SUMS, error) from None
        if "manifest.json" not in sums:
            raise Damaged(f"{SUMS} does not name manifest.json")
        for name in sums:
            _check(path, name, sums)
        manifest = _parsed_manifest(_checked(path, "manifest.json", sums))
        for name in map(seen_file, range(len(manifest["classes"]))):
            if name not in sums:
                raise Damaged(f"{SUMS} does not name {name}")
        return cls(path, manifest, sums)


def seen_file(index: int) -> str:
    """Name of the file about the images of one class."""
    return f"seen-{index:05d}.safetensors"


def _unreadable(path: Path, name: str, error: OSError) -> ValueError:
    if not path.exists():  # two changes by others while it was read: no more than the newest two stay
        return InputError(f"{path} was replaced by another process while it was read; repeat the command.")
    return Damaged(f"{name} cannot be read: {error.strerror}")


def _check(path: Path, name: str, sums: Mapping[str, str]) -> None:
    hashed = hashlib.sha256()
    try:
        with (path / name).open("rb") as file:
            while part := file.read(1 << 20):
                hashed.update(part)
    except OSError as error:
        raise _unreadable(path, name, error) from None
    if hashed.hexdigest() != sums[name]:
        raise Damaged(f"{name} does not match its checksum")


def _checked(path: Path, name: str, sums: Mapping[str, str]) -> bytes:
    try:
        content = (path / name).read_bytes()
    except OSError as error:
        raise _unreadable(path, name, error) from None
    if hashlib.sha256(content).hexdigest() != sums.get(name):
        raise Damaged(f"{name} does not match its checksum")
    return content


def _parsed_sums(content: bytes) -> dict[str, str]:
    sums = {}
    *lines, rest = content.decode("ascii", "replace").split("\n")
    if rest:
        raise Damaged(f"{SUMS} is cut off")
    for line in lines:
        match = _SUM_LINE.fullmatch(line)
        if match is None:
            raise Damaged(f"{SUMS} has a line that is no checksum")
        sums[match[2]] = match[1]
    return sums


def _parsed_manifest(content: bytes) -> dict[str, Any]:
    try:
        manifest = json.loads(content.decode())
    except (ValueError, RecursionError):
        raise Damaged("manifest.json is not JSON") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise Damaged("manifest.json is not that of a learner")
    if manifest.get("version") != VERSION:
        raise InputError(
            f"this state has version {manifest.get('version')} of its format and this program reads {VERSION}; "
            "use the program's version that wrote it, or a newer one."
        )
    for name, kind in (("settings", dict), ("classes", list), ("batches", list)):
        if not isinstance(manifest.get(name), kind):
            raise Damaged(f"manifest.json has no {name}")
    for entry in manifest["classes"]:
        _check_class(entry, len(manifest["batches"]))
    if not all(
        isinstance(batch, dict) and isinstance(batch.get("source"), str | None) for batch in manifest["batches"]
    ):
        raise Damaged("manifest.json has a batch that is none")
    return manifest


def _check_class(entry: Any, batches: int) -> None:
    if not isinstance(entry, dict) or type(entry.get("name")) not in (str, int):
        raise Damaged("manifest.json has a class without a name")
    counts, noise = [entry.get(name) for name in ("seen", "kept", "looks_wrong")], entry.get("noise", {})
    if not all(type(count) is int and count >= 0 for count in counts):
        raise Damaged("manifest.json does not count a class's images")
    shares = [0.0] if noise is None else [noise.get(name) for name in _NOISE] if isinstance(noise, dict) else [None]
    if not all(isinstance(share, int | float) and 0 <= share <= 1 for share in shares):
        raise Damaged("manifest.json has a noise that is no share of images")
    batch = entry.get("noise_batch")
    if batch is not None and not (type(batch) is int and 0 <= batch < batches):
        raise Damaged("manifest.json has a noise of a batch that is none")
