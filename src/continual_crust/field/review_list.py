"""What a learner thinks of every image it was ever given, as a list for programs."""

from __future__ import annotations

import csv
import io

import numpy as np

from continual_crust.field.generation import Generation
from continual_crust.field.seen import MARKS

COLUMNS = ("file", "class", "kept", "looks_wrong", "label_right", "rather", "rather_probability", "mark", "folder")


def listed(generation: Generation) -> str:
    """A CSV text with one row for each image, class by class, the most doubtful first.

    `file` and `class` are those of a review file; `rather` is the class the learner would give instead; `folder` is the
    one that was learned, below which the file was.
    """
    labels = [entry["name"] for entry in generation.manifest["classes"]]
    folders = [batch["source"] or "" for batch in generation.manifest["batches"]]
    words = {number: word for word, number in MARKS.items()}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for index, label in enumerate(labels):
        seen = generation.seen(index)
        names, wrong = seen.names(), seen.looks_wrong()
        for row in np.argsort(seen.score, kind="stable").tolist():
            other = int(seen.other[row])
            rather = (labels[other], f"{seen.other_probability[row]:.4f}") if other >= 0 else ("", "")
            yes_or_no = ("yes" if seen.kept[row] else "no", "yes" if wrong[row] else "no")
            last = words.get(int(seen.mark[row]), ""), folders[seen.batch[row]]
            writer.writerow([names[row], label, *yes_or_no, f"{seen.score[row]:.4f}", *rather, *last])
    return text.getvalue()
