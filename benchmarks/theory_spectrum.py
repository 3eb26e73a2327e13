"""The Jacobian's spectrum, exact and without ever writing it out: do they agree, and what memory does each take?

    OMP_NUM_THREADS=1 python benchmarks/theory_spectrum.py --out results/theory_spectrum.json

Agreement is measured where both ways are possible: on a digits learner's own coreset, and on the paper's SimpleCNN for
28×28 images with few of them. Memory is measured on SimpleCNN with a coreset of 300, every case in a process of its
own: by how much the process's largest resident set exceeds what was resident before. Random images and weights will
do, since neither time nor memory depends on them. Takes some minutes on one core and, for the exact way, 10 GB;
needs Linux.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from continual_crust.data import Noise, NoiseKind, load_dataset
from continual_crust.models import build_model
from continual_crust.strategies import strategy_named
from continual_crust.studies.config import RunConfig
from continual_crust.studies.defaults import defaults_for
from continual_crust.studies.result import versions
from continual_crust.studies.run import execute
from continual_crust.theory import Outputs
from continual_crust.theory.jacobian import Jacobian
from continual_crust.theory.learner import ClassData
from continual_crust.theory.spectrum import MOST_PRODUCTS, lanczos, singular_values
from continual_crust.writing import write_atomically

MIB = 1 << 20
CORESET = 300
FEW = 24
"""Images of 28×28 pixels for which every method is quick."""
BUDGETS = (64, 128, 512)
"""MiB of Jacobian to hold at a time."""


def simple_cnn(images: int) -> Jacobian:
    """Of the paper's small network on random images of 28×28 pixels."""
    outputs = Outputs.of(build_model("simple_cnn", (1, 28, 28), 10, seed=0), label=0)
    drawn = torch.rand(images, 1, 28, 28, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return Jacobian(outputs, outputs.start, drawn)


def digits_coreset() -> Jacobian:
    """Of a class's coreset, at the weights of a learner of digits with flipped labels."""
    defaults = defaults_for("digits", NoiseKind.LABEL)
    config = RunConfig(
        "digits",
        "crust",
        defaults.model,
        Noise(NoiseKind.LABEL, 0.3),
        0,
        defaults.training,
        strategy_named("crust").default_selector,
    )
    data = ClassData.of(execute(config, load_dataset("digits"), torch.device("cpu")), "3")
    return Jacobian(data.outputs, data.outputs.start, data.inputs[data.coreset])


def agreement(name: str, jacobian: Jacobian) -> dict[str, Any]:
    """The largest relative difference of any singular value from the exact one."""
    exact = singular_values(jacobian, "dense")
    too_little = jacobian.shape[1] * 8 * 4  # four rows
    return {
        "network": name,
        "rows": jacobian.shape[0],
        "parameters": jacobian.shape[1],
        "largest": float(exact[0]),
        "smallest": float(exact[-1]),
        "largest_relative_difference": {
            method: float(((singular_values(jacobian, method, too_little) - exact) / exact).abs().max())
            for method in ("gram", "lanczos")
        },
    }


def memory_case(method: str, budget: int) -> dict[str, Any]:
    """Time and memory of one way to the spectrum of 300 samples; to be called in a fresh process."""
    torch.set_num_threads(1)
    jacobian = simple_cnn(CORESET)
    before, start = status("VmRSS"), time.perf_counter()
    values, products = spectrum(jacobian, method, budget)
    return {
        "method": method,
        "memory_mib": budget if method == "gram" else None,
        "peak_growth_mib": round(status("VmHWM") - before),
        "seconds": round(time.perf_counter() - start, 1),
        "products": products,
        "largest": float(values[0]),
        "smallest": float(values[-1]) if len(values) == CORESET else None,
    }


def spectrum(jacobian: Jacobian, method: str, budget: int) -> tuple[Tensor, int | None]:
    """Singular values, and for Lanczos, which stops when the largest is known, after how many products."""
    if method == "lanczos, largest":
        squares, _ = lanczos(jacobian, MOST_PRODUCTS)
        return squares.clamp(min=0).sqrt(), len(squares)
    return singular_values(jacobian, method, budget * MIB), None


def status(name: str) -> float:
    """A line of /proc/self/status in MiB: VmRSS is resident now, VmHWM the most there ever was."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def main() -> None:
    """Measure and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/theory_spectrum.json"))
    torch.set_num_threads(1)
    out: Path = parser.parse_args().out
    agreements = [
        agreement("digits learner, a coreset of 25", digits_coreset()),
        agreement(f"SimpleCNN, {FEW} images of 28×28", simple_cnn(FEW)),
    ]
    cases = [("dense", 0), *(("gram", budget) for budget in BUDGETS), ("lanczos, largest", 0)]
    context = multiprocessing.get_context("spawn")
    memory = []
    for case in cases:
        with ProcessPoolExecutor(1, context) as fresh:
            memory.append(fresh.submit(memory_case, *case).result())
    width = simple_cnn(1).shape[1]
    result = {
        "agreement": agreements,
        "memory": {
            "network": f"SimpleCNN, {CORESET} images of 28×28",
            "dense_jacobian_mib": round(CORESET * width * 8 / MIB),
            "cases": memory,
        },
        "versions": versions(),
    }
    write_atomically(out, json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(out.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
