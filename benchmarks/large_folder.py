"""Learn a folder of many images with little memory: how much is really used, and how time grows.

    python benchmarks/large_folder.py --images 2000 8000 --memory-gib 4 --out results/large_folder.json

Makes colour images of 32 × 32 pixels, half of them per class, and runs the command line in a process that may not have
more private memory than the limit. The cache holds a quarter of the images only. There are two epochs on new images,
one on all and one on what looks right, since more take more time but no more memory. What is decoded lies in a file
that is mapped into memory, which the operating system takes back whenever it likes; so the figure that counts is the
peak of anonymous memory.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from PIL import Image

from continual_crust.studies.result import versions
from continual_crust.writing import write_json

SIDE = 32


def make_images(folder: Path, count: int) -> None:
    """Bright squares on the left for one class, on the right for the other, on noise."""
    random = np.random.default_rng(0)
    for number in range(count):
        name = ("left", "right")[number % 2]
        pixels = random.integers(0, 120, (SIDE, SIDE, 3), dtype=np.uint8)
        at = random.integers(2, 8) + (16 if name == "right" else 0)
        pixels[8:20, at : at + 8] += 100
        (folder / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / name / f"{number}.jpg", quality=90)


def anonymous_bytes(process: int) -> int:
    """Private memory of a process at this moment."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def measured(images: int, limit: int) -> dict[str, float | int]:
    """Learn so many images within a limit of private memory."""
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        make_images(folder / "images", images)
        cache = images * SIDE * SIDE * 3 / 4 / (1 << 30)
        command = [
            *(sys.executable, "-m", "continual_crust", "learn", root + "/S", root + "/images"),
            *("--cache-size", str(max(cache, 0.001)), "--device", "cpu", "-m", "2", "-n", "2"),
        ]
        start, peak = time.perf_counter(), 0
        process = subprocess.Popen(
            command, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)), stdout=subprocess.PIPE
        )
        done = threading.Event()

        def watch() -> None:
            nonlocal peak
            while not done.wait(0.05):
                try:
                    peak = max(peak, anonymous_bytes(process.pid))
                except OSError:
                    return

        watcher = threading.Thread(target=watch)
        watcher.start()
        process.communicate()
        done.set()
        watcher.join()
        if process.returncode:
            raise SystemExit("learning did not end well")
        return {"images": images, "seconds": time.perf_counter() - start, "peak_anonymous_mib": peak / (1 << 20)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, nargs="+", default=[2000, 8000])
    parser.add_argument("--memory-gib", type=float, default=4)
    parser.add_argument("--out", type=Path, default=Path("results/large_folder.json"))
    options = parser.parse_args()
    runs = []
    for images in options.images:
        runs.append(measured(images, int(options.memory_gib * (1 << 30))))
        print(runs[-1], flush=True)
    result = {
        "memory_limit_gib": options.memory_gib,
        "threads": os.environ.get("OMP_NUM_THREADS", "default"),
        "image_side": SIDE,
        "share_in_cache": 0.25,
        "runs": runs,
        "versions": versions(),
    }
    write_json(options.out, result)


if __name__ == "__main__":
    main()
