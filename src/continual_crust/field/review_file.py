"""What a person said about the images: a CSV file with the columns ``file,class,mark,new_class``.

``right`` keeps the image, ``wrong`` throws it out for good, ``other`` moves it to ``new_class``. ``new`` does as well,
and makes that class where it is not known yet: another word, so that no slip of the pen makes one.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from continual_crust.errors import InputError, unknown_name
from continual_crust.field.seen import MARKS, OTHER

COLUMNS = ("file", "class", "mark", "new_class")
NEW = "new"
LARGEST_FILE = 200_000_000
"""More is no list of marks."""


@dataclass(frozen=True)
class Mark:
    """One line of a review file."""

    file: str
    label: str
    mark: int
    """`RIGHT`, `WRONG` or `OTHER` of `continual_crust.field.seen`."""
    new_label: str | None
    where: str
    """File and line, for errors."""
    may_be_new: bool = False
    """Whether `new_label` is made where it is not known yet."""


def read_review(path: Path) -> list[Mark]:
    """The marks in a file; refuses one that is anything else, with the line that shows it."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise InputError(f"{path} is too large for a review; export it again.")
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); give the file a review exported.") from None
    except UnicodeDecodeError:
        raise InputError(
            f"{path} is not UTF-8; export the review again, and save it as UTF-8 if you edit it."
        ) from None
    return parse_review(text, str(path))


def parse_review(text: str, where: str) -> list[Mark]:
    """The marks in a text; `where` it comes from is told in errors.

    >>> parse_review("file,class,mark,new_class\\n1.png,cat,other,dog\\n", "here")
    [Mark(file='1.png', label='cat', mark=3, new_label='dog', where='here, line 2', may_be_new=False)]
    """
    # Spreadsheets of countries that write 0,5 separate values by semicolons, and some save tabs.
    separator = next((mark for mark in ";\t" if mark in text.partition("\n")[0]), ",")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=separator)
    marks: dict[tuple[str, str], Mark] = {}
    try:
        header = next(reader, [])
        if tuple(name.strip() for name in header) != COLUMNS:
            raise InputError(
                f"{where} does not start with the line {','.join(COLUMNS)}; give what the review page exports, or "
                "write these columns yourself."
            )
        for row in reader:
            if any(row):  # a spreadsheet leaves separators where a line was emptied
                mark = _mark(row, f"{where}, line {reader.line_num}")
                before = marks.setdefault((mark.label, mark.file), mark)
                if (before.mark, before.new_label) != (mark.mark, mark.new_label):
                    raise InputError(f"{before.where} and line {reader.line_num} contradict each other; remove one.")
    except csv.Error as error:
        raise InputError(f"{where}, line {reader.line_num}, is not CSV ({error}); export the review again.") from None
    return [*marks.values()]


def _mark(row: list[str], where: str) -> Mark:
    if len(row) != len(COLUMNS):
        raise InputError(f"{where} has {len(row)} values instead of {len(COLUMNS)}; mend or remove it.")
    file, label, word, new_label = row
    words = {**MARKS, NEW: OTHER}
    if word not in words:
        raise InputError(f"{where}: {unknown_name('mark', word, words)}")
    moves = words[word] == OTHER
    if moves != bool(new_label.strip()):
        needs = "needs the class it belongs to" if moves else "takes no new class"
        raise InputError(f"{where}: mark '{word}' {needs}; mend or remove the line.")
    return Mark(file, label, words[word], new_label or None, where, word == NEW)
