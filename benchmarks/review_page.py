"""How smooth the page of a review is with ten thousand images, beside a page that shows them all as plain elements.

    python benchmarks/review_page.py --out results/review_page.json

Both pages show the same colour thumbnails of 48 × 48 pixels and the same texts. The plain page is what one would write
first: an ``<img>`` with a ``data:`` address and three lines of text for each image. In Debian's chromium without a
window both are opened, scrolled through a little in every frame, jumped about in, and filtered. Processor time of the
page's main thread is what the browser itself counts (``Performance.getMetrics``). Takes a minute.
"""

from __future__ import annotations

import argparse
import base64
import json
import statistics
import tempfile
import time
from html import escape
from pathlib import Path

import numpy as np

from chromium import Browser
from continual_crust.field.review_data import ReviewData, ReviewedClass
from continual_crust.field.review_page import page_html
from continual_crust.field.review_sheets import sheets_of
from continual_crust.field.seen import thumbnail_of
from continual_crust.report.page_style import CSS
from continual_crust.studies.result import versions
from continual_crust.writing import write_json

CLASSES = 10
FRAMES = 120
# Scrolls by one step in each frame and tells how long frames took and how many elements there were at most.
SCROLL = """
new Promise((done) => {
  const height = document.documentElement.scrollHeight - innerHeight;
  const times = [];
  let frame = 0, elements = 0, last = performance.now();
  const next = (now) => {
    times.push(now - last);
    last = now;
    if (frame % 20 === 0) elements = Math.max(elements, document.querySelectorAll("*").length);
    if (frame === FRAMES) {
      done({ times: times.slice(1), elements });
      return;
    }
    frame += 1;
    scrollTo(0, POSITION);
    requestAnimationFrame(next);
  };
  requestAnimationFrame(next);
})
"""
# Hides what was kept and shows it again, and tells how long that takes until everything is in its place.
FILTER = """
(() => {
  const box = document.getElementById("which-kept"), cells = document.querySelectorAll("[data-kept=true]");
  const times = [];
  for (const value of ["out", "", "out", "", "out", ""]) {
    const start = performance.now();
    if (box) {
      box.value = value;
      box.dispatchEvent(new Event("change"));
    }
    for (const cell of cells) cell.style.display = value ? "none" : "";
    document.body.getBoundingClientRect();
    times.push(performance.now() - start);
  }
  return times;
})()
"""
WAYS = {
    "by 120 pixels a frame": "frame * 120",
    "through everything": "height * frame / FRAMES",
    "jumping about": "height * ((frame * 0.618) % 1)",
}
COUNTED = {
    "script": "ScriptDuration",
    "style": "RecalcStyleDuration",
    "layout": "LayoutDuration",
    "all": "TaskDuration",
}


def made_up(count: int) -> ReviewData:
    """Images with structure and noise, so that they compress as photographs do."""
    random = np.random.default_rng(0)
    coarse = random.integers(0, 256, (count, 3, 6, 6), dtype=np.uint8)
    thumbnails = []
    for image in coarse:
        smooth = np.kron(image, np.ones((1, 8, 8))) + random.normal(0, 8, (3, 48, 48))
        thumbnails.append(thumbnail_of(smooth.clip(0, 255).astype(np.uint8)))
    label = np.arange(count) * CLASSES // count
    within = np.arange(count) % (count // CLASSES)
    return ReviewData(
        identity="benchmark",
        generation="1-0",
        classes=[ReviewedClass(f"class {index}", count // CLASSES, 60, 100, None) for index in range(CLASSES)],
        label=label,
        names=[f"class {index}/IMG_{number:05d}.jpg" for number, index in enumerate(label.tolist())],
        folders=["/photos"] * count,
        kept=within < 60,
        score=within / (count // CLASSES),
        other=(label + 1) % CLASSES,
        other_probability=random.random(count),
        mark=np.zeros(count, np.uint8),
        moved=np.full(count, -1),
        thumbnails=thumbnails,
        left_out=0,
    )


def plain_page(data: ReviewData) -> str:
    """Everything there at once."""
    cells = "".join(
        f'<div class="cell" data-kept="{str(kept).lower()}">'
        f'<img src="data:image/jpeg;base64,{base64.b64encode(thumbnail).decode()}" alt="">'
        f"<span>{escape(name)}</span><span>{score:.0%} right</span>"
        f"<span>rather {escape(data.classes[other].name)} {probability:.0%}</span>"
        "<span><button>✓</button><button>✗</button><button>⇄</button></span></div>"
        for name, kept, thumbnail, score, other, probability in zip(
            *(data.names, data.kept.tolist(), data.thumbnails, data.score, data.other, data.other_probability),
            strict=True,
        )
    )
    style = (
        ".grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(9.5rem,1fr));gap:.5rem}"
        ".cell{display:flex;flex-direction:column;align-items:center;border:2px solid}img{width:6rem;height:6rem}"
    )
    return (
        f'<!doctype html><meta charset="utf-8"><style>{CSS}{style}</style><main><div class="grid">{cells}</div></main>'
    )


def metrics(browser: Browser) -> dict[str, float]:
    return {entry["name"]: entry["value"] for entry in browser.send("Performance.getMetrics")["metrics"]}


def measured(page: Path) -> dict[str, object]:
    """Open a page in a fresh browser and scroll through it in several ways."""
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(Path(profile))
        try:
            browser.send("Network.disable")  # or it would tell of ten thousand images, one by one
            browser.send("Performance.enable", timeDomain="threadTicks")
            start = time.perf_counter()
            browser.open(page)
            browser.ask("document.documentElement.scrollHeight")
            loaded = time.perf_counter() - start
            ways = {}
            for way, position in WAYS.items():
                before = metrics(browser)
                script = SCROLL.replace("POSITION", position).replace("FRAMES", str(FRAMES))
                answer = browser.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
                after, found = metrics(browser), answer["result"]["value"]
                per_frame = {
                    f"{name}_ms": round(1000 * (after[key] - before[key]) / FRAMES, 3) for name, key in COUNTED.items()
                }
                ways[way] = {
                    "per_frame": per_frame,
                    "frame_ms_median": round(statistics.median(found["times"]), 1),
                    "frame_ms_95_percent": round(statistics.quantiles(found["times"], n=20)[-1], 1),
                    "elements_at_most": found["elements"],
                }
            return {
                "page_mb": round(page.stat().st_size / 1e6, 2),
                "open_seconds": round(loaded, 2),
                "filter_ms": round(statistics.median(browser.ask(FILTER)), 1),
                "scrolling": ways,
            }
        finally:
            browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=Path("results/review_page.json"))
    arguments = parser.parse_args()
    data = made_up(arguments.images)
    with tempfile.TemporaryDirectory() as folder:
        ours, plain = Path(folder, "ours.html"), Path(folder, "plain.html")
        start = time.perf_counter()
        ours.write_text(page_html(data, sheets_of(data.thumbnails), "STATE"), encoding="utf-8")
        written = time.perf_counter() - start
        plain.write_text(plain_page(data), encoding="utf-8")
        results = {"review": measured(ours), "plain": measured(plain)}
    ratios = {
        way: round(
            results["plain"]["scrolling"][way]["per_frame"]["all_ms"]
            / results["review"]["scrolling"][way]["per_frame"]["all_ms"],
            1,
        )
        for way in WAYS
    }
    found = {
        "images": arguments.images,
        "frames": FRAMES,
        "write_seconds": round(written, 2),
        **results,
        "plain_over_review": {
            "open": round(results["plain"]["open_seconds"] / results["review"]["open_seconds"], 1),
            "filter": round(results["plain"]["filter_ms"] / results["review"]["filter_ms"], 1),
            "work_per_frame": ratios,
        },
        "versions": versions(),
    }
    write_json(arguments.out, found)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
