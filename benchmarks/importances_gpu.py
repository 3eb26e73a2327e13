"""How long EWC's importances of a network take on a GPU: by convolutions, and by products of matrices, which are ours.

    python benchmarks/importances_gpu.py --out results/importances_gpu.json

Both go through the same random images, sixteen at a time, in the same process; the first sixteen are not counted.
"""

from __future__ import annotations

import argparse
import json
import time
from contextlib import nullcontext
from pathlib import Path

import torch

from continual_crust.data.samples import Samples
from continual_crust.models import build_model
from continual_crust.strategies import fisher
from continual_crust.strategies.network import Network
from continual_crust.studies.result import write_atomically
from training_gpu import DEVICE, machine

SAMPLES = 96
NETWORKS = {"simple_cnn": (1, 28, 28), "resnet18": (3, 32, 32), "efficientnet_v2_s": (1, 64, 64)}


def seconds(network: Network, samples: Samples) -> float:
    """For all samples but the first."""
    warm = fisher.GROUPS_AT_A_TIME
    fisher.fisher_diagonal(network, samples[torch.arange(warm, device=DEVICE)])
    torch.cuda.synchronize()
    start = time.perf_counter()
    fisher.fisher_diagonal(network, samples[torch.arange(warm, len(samples), device=DEVICE)])
    torch.cuda.synchronize()
    return time.perf_counter() - start


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    facts = {"command": f"python benchmarks/importances_gpu.py --out {out}", "machine": machine(), "networks": {}}
    products = fisher.ConvolutionsAsProducts
    for name, shape in NETWORKS.items():
        network = Network(build_model(name, shape, 10), DEVICE)
        images = torch.randint(256, (SAMPLES + fisher.GROUPS_AT_A_TIME, *shape), dtype=torch.uint8)
        samples = Samples.of(images, torch.arange(len(images)) % 10).to(DEVICE)
        network.measure_normalization(samples.images)
        taken = {}
        for way, mode in (("products", products), ("convolutions", nullcontext)):
            fisher.ConvolutionsAsProducts = mode
            taken[way] = 1000 * seconds(network, samples) / SAMPLES
        ratio = taken["convolutions"] / taken["products"]
        facts["networks"][name] = {"image": shape, "milliseconds_per_sample": taken, "times_faster": ratio}
        print(name, taken, round(ratio, 1), flush=True)
        write_atomically(out, json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
