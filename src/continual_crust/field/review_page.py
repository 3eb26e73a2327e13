"""One HTML page on which a person looks over a learner's shoulder and says what is right and what is wrong.

It holds all it shows, asks no network for anything, and stays quick with ten thousand images: thumbnails lie in sheets
(`review_sheets`), and only those in sight are elements of the page. Its script and style are the files beside this one.
Whatever comes from files reaches the page as JSON and is put there as text, never as markup; the page's security policy
lets only its own script run.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
import zlib
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from continual_crust.errors import told_if_unwritable
from continual_crust.field.folder import readable
from continual_crust.field.generation import Generation
from continual_crust.field.review_data import ReviewData, review_data
from continual_crust.field.review_sheets import COLUMNS, PER_SHEET, Sheets, sheets_of
from continual_crust.report.page_style import CSS
from continual_crust.writing import write_atomically

MOST = 20_000
"""Images on one page, unless told otherwise."""
TITLE = "continual-crust: review"
PRINTS = 1_000
"""So many fingerprints of images there are: enough to tell, in a browser, that another image has taken a name."""


def write_review_page(generation: Generation, state: Path, page: Path, most: int = MOST) -> ReviewData:
    """Write the page about a learner, whole or not at all.

    Parameters
    ----------
    generation
        The learner.
    state
        Folder it was read from, as the person calls it: the page tells the command that applies its marks.
    page
        Where to write. Its folder is made if it is not there.
    most
        Images to show: all that are kept, and then the most doubtful ones.

    Returns
    -------
    What the page shows.
    """
    data = review_data(generation, most)
    html = page_html(data, sheets_of(data.thumbnails), readable(str(state)))
    with told_if_unwritable(page):
        page.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(page, html)
    return data


def page_html(data: ReviewData, sheets: Sheets, state: str) -> str:
    """The page; `state` is how the person calls the learner's folder."""
    style = f"{CSS}\n{_beside('review_page.css')}"
    script = _beside("review_page.js")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    pictures = "\n".join(
        f'<script type="text/plain" id="sheet-{number}">{base64.b64encode(file).decode()}</script>'
        for number, file in enumerate(sheets.files)
    )
    left_out = ""
    if data.left_out:
        left_out = (
            f'<p class="soft">{data.left_out:,} more images are in less doubt and not shown; with '
            "<code>--most</code> they are.</p>"
        )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{TITLE}</title>
<style>{style}</style>
</head>
<body>
<noscript><p>This page needs scripts. They are its own, and nothing leaves this computer.</p></noscript>
<main id="page" hidden>
<header id="top">
<h1>What the learner kept, and what it threw out</h1>
<p>Say what is <strong>right</strong> (it will be kept), what is <strong>wrong</strong> (it will stay out) and what
<strong>belongs to another class</strong> (it will move there; you may name a new one). Marks stay in this browser; the
learner changes only with the command that the export tells.</p>
{left_out}
<details class="keyboard"><summary>Keys</summary>
<ul class="keys">
<li><kbd>←</kbd> <kbd>→</kbd> <kbd>↑</kbd> <kbd>↓</kbd> move</li>
<li><kbd>Shift</kbd> with them, or with a click: choose several</li>
<li><kbd>R</kbd> right</li><li><kbd>W</kbd> wrong</li><li><kbd>O</kbd> other class, then <kbd>Enter</kbd></li>
<li><kbd>U</kbd> no mark</li><li><kbd>Z</kbd> take back</li><li><kbd>E</kbd> export</li>
</ul></details>
<p class="note" id="unsaved" role="alert" hidden>This browser does not keep marks for this page. Export them before you
close or reload it.</p>
<p class="note" id="earlier" hidden><span id="earlier-count"></span> from an earlier page of this learner were never
applied. <button type="button" id="earlier-take">Take them over</button><button type="button" id="earlier-forget">Forget
them</button></p>
</header>
<div id="toolbar" role="toolbar" aria-label="What is shown">
<label>Class <select id="which-class"><option value="">all</option></select></label>
<label>Show <select id="which-kept"><option value="">all</option><option value="kept">kept</option>
<option value="out">thrown out</option></select></label>
<label>Marks <select id="which-mark"><option value="">any</option><option value="doubtful">look wrong, unmarked</option>
<option value="unmarked">unmarked</option><option value="marked">marked, to export</option>
<option value="right">right</option><option value="wrong">wrong</option><option value="other">other class</option>
<option value="applied">applied before</option></select></label>
<span class="actions"><button type="button" id="undo" title="Take back the last mark (Z)">Undo</button>
<button type="button" id="export" class="main" title="Export (E)">Export marks</button></span>
<span class="where"><span id="counts" role="status" title="✓ right, ✗ wrong, ⇄ another class"></span>
<span id="here"></span></span>
</div>
<div id="grid" role="grid" tabindex="0" aria-label="Images" aria-multiselectable="true"></div>
<p id="nothing" hidden>No image is like that.</p>
<section id="detail" aria-label="The current image">
<div id="large" class="picture" role="img" aria-labelledby="full-name"></div>
<div class="text"><p id="full-name"></p><p id="facts" class="soft"></p>
<p class="soft last"><span id="chosen"></span> <span id="said" aria-live="polite"></span></p></div>
<div class="actions"><button type="button" data-mark="right">✓ Right <kbd>R</kbd></button>
<button type="button" data-mark="wrong">✗ Wrong <kbd>W</kbd></button>
<button type="button" data-mark="other">⇄ Other… <kbd>O</kbd></button>
<button type="button" data-mark="none">Clear <kbd>U</kbd></button></div>
</section>
<dialog id="picker" aria-labelledby="picker-title">
<h2 id="picker-title">Belongs to another class</h2>
<p class="soft" id="picker-what"></p>
<select id="picker-class" size="8" aria-label="The class it belongs to"></select>
<p><label>Or one that is not known yet <input id="picker-new" maxlength="200" autocomplete="off"></label></p>
<p class="dialog-actions"><button type="button" class="main" id="picker-move">Belongs there</button>
<button type="button" class="close">Cancel</button></p>
</dialog>
<dialog id="exporting" aria-labelledby="export-title">
<h2 id="export-title">Export marks</h2>
<textarea id="csv" readonly spellcheck="false" aria-label="The marks as CSV"></textarea>
<p class="dialog-actions"><button type="button" class="main" id="download">Download</button>
<button type="button" id="copy">Copy</button><button type="button" class="close">Close</button></p>
<p id="copied" role="status"></p>
<p>Then, in the folder you started from, with the place of that file:</p>
<p><code id="command"></code></p>
</dialog>
</main>
<script type="application/json" id="data">{_json(_for_script(data, sheets, state))}</script>
{pictures}
<script>{script}</script>
</body>
</html>
"""


def _for_script(data: ReviewData, sheets: Sheets, state: str) -> dict[str, Any]:
    folders = {folder: number for number, folder in enumerate(dict.fromkeys(data.folders))}
    file = f"review-{data.generation.partition('-')[0]}.csv"
    return {
        "identity": data.identity,
        "generation": data.generation,
        "file": file,
        "command": f"continual-crust learn {shlex.quote(state)} --review {file}",
        "classes": [
            {"name": one.name, "seen": one.seen, "kept": one.kept, "wrong": one.looks_wrong, "noise": one.noise}
            for one in data.classes
        ],
        "label": data.label.tolist(),
        "names": data.names,
        "folders": [folder if folder is None else readable(folder) for folder in folders],
        "folder": [folders[folder] for folder in data.folders],
        "kept": data.kept.tolist(),
        "score": _short(data.score.tolist()),
        "other": data.other.tolist(),
        "probability": _short(data.other_probability.tolist()),
        "mark": data.mark.tolist(),
        "moved": data.moved.tolist(),
        "print": [zlib.crc32(thumbnail) % PRINTS for thumbnail in data.thumbnails],
        "sheet": {
            "width": sheets.width,
            "height": sheets.height,
            "pitchX": sheets.pitch_x,
            "pitchY": sheets.pitch_y,
            "columns": COLUMNS,
            "per": PER_SHEET,
        },
    }


def _short(shares: Iterable[float]) -> list[float]:
    return [round(share, 4) for share in shares]


def _json(value: Any) -> str:
    """JSON that no text in it can break out of: it holds no character that means anything to HTML."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _beside(name: str) -> str:
    return (files("continual_crust.field") / name).read_text(encoding="utf-8")
