"""Our compared methods beside Avalanche's: same stream, network, initial weights and budget.

    python benchmarks/cross_check.py --out results/cross_check_avalanche.json

runs every method of Avalanche 0.6 and ours on digits, three seeds each, and writes the table that
``docs/compared-methods.md`` shows. Takes a quarter of an hour on one core.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from avalanche_peers import run_avalanche
from continual_crust.data import Dataset, Noise, NoiseKind, load_dataset
from continual_crust.strategies import strategy_named
from continual_crust.studies.config import RunConfig
from continual_crust.studies.defaults import defaults_for
from continual_crust.studies.result import versions
from continual_crust.studies.run import execute
from continual_crust.writing import write_json

# What each side is told, so that both do the same. Our λ is twice Avalanche's, which lacks the 1/2 of the penalty.
METHODS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "naive": ({}, {}),
    "joint": ({}, {}),
    "cumulative": ({}, {}),
    "replay": ({"mixing": "equal"}, {}),
    "replay_ewc": ({"mixing": "equal", "strength": 2.0, "fisher_batch": 32}, {"ewc_lambda": 1.0}),
    "der": ({"alpha": 0.1, "beta": 0.5}, {"alpha": 0.1, "beta": 0.5}),
    "icarl": ({}, {}),
}


@dataclass(frozen=True)
class Comparison:
    """One method on both sides."""

    method: str
    noise: str
    seeds: list[int]
    ours: list[float]
    avalanche: list[float]
    difference: float
    """Mean of ours minus mean of theirs."""
    our_seconds: float
    """Mean over seeds, in the same process on the same machine."""
    avalanche_seconds: float


def compare(method: str, dataset: Dataset, noise: Noise, seeds: list[int]) -> Comparison:
    """Final accuracy and training time of one method, ours and Avalanche's turn by turn."""
    defaults = defaults_for("digits", NoiseKind.LABEL)
    our_options, their_options = METHODS[method]
    ours, theirs = [], []
    for seed in seeds:
        config = RunConfig(
            dataset="digits",
            method=method,
            model=defaults.model,
            noise=noise,
            seed=seed,
            training=defaults.training,
            selector=strategy_named(method).default_selector,
            options=our_options,
        )
        ours.append(execute(config, dataset, torch.device("cpu")).result)
        theirs.append(run_avalanche(method, dataset, noise, seed, defaults.training, **their_options))
    return Comparison(
        method=method,
        noise=str(noise),
        seeds=seeds,
        ours=[round(run.accuracy, 4) for run in ours],
        avalanche=[round(run.accuracy, 4) for run in theirs],
        difference=round(statistics.mean(r.accuracy for r in ours) - statistics.mean(r.accuracy for r in theirs), 4),
        our_seconds=round(statistics.mean(run.seconds for run in ours), 2),
        avalanche_seconds=round(statistics.mean(run.seconds for run in theirs), 2),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where to write the table, as JSON")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--noise", nargs="+", default=["none", "label:0.4"])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dataset = load_dataset("digits")
    rows = []
    for noise in arguments.noise:
        for method in arguments.methods:
            row = compare(method, dataset, Noise.parse(noise), list(range(arguments.seeds)))
            rows.append(asdict(row))
            print(
                f"{row.noise:10} {row.method:11} ours {statistics.mean(row.ours):.3f}  "
                f"Avalanche {statistics.mean(row.avalanche):.3f}  difference {row.difference:+.3f}  "
                f"seconds {row.our_seconds:.1f} against {row.avalanche_seconds:.1f}",
                flush=True,
            )
            table = {"dataset": "digits", "threads": 1, "versions": versions(), "rows": rows}
            write_json(arguments.out, table)


if __name__ == "__main__":
    main()
