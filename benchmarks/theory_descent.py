"""The lemma behind both theorems, at work: real gradient descent stays under the bound.

    python benchmarks/theory_descent.py --figure docs/theory_descent.png --out results/theory_descent.json

A small network learns eight digits by plain gradient descent on the mean-squared error with η = 1/(2β²). At every step
the lemma's conditions are measured and the residual is held against the bound. Takes seconds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from continual_crust.data import load_dataset
from continual_crust.report.drawing import new_figure, save_png
from continual_crust.theory import Descent, Outputs, descend, measure
from continual_crust.writing import write_json


def four_zeros_and_four_ones() -> tuple[Tensor, Tensor]:
    """Centred images of one length, and their labels +1 and -1."""
    digits = load_dataset("digits")
    images = digits.train_images.flatten(1).double()
    chosen = torch.cat([(digits.train_labels == label).nonzero().flatten()[:4] for label in (0, 1)])
    inputs = 3 * nn.functional.normalize((images - images.mean(dim=0))[chosen], dim=1)
    return inputs, torch.tensor([[1.0]] * 4 + [[-1.0]] * 4, dtype=torch.float64)


def watched(steps: int) -> Descent:
    """Descend from random weights, all eight samples being the coreset."""
    inputs, targets = four_zeros_and_four_ones()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        f = Outputs.of(nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 1)), view="raw")
    found = measure(f, f.start, inputs, targets, torch.arange(8), margin=2.0)
    # Room to either side: the Jacobian moves while it is descended on.
    return descend(f, f.start, inputs, targets, steps=steps, alpha=0.8 * found.alpha, beta=1.25 * found.beta)


def figure_of(descent: Descent) -> Figure:
    """The residual and the lemma's bound on it, step by step."""
    figure, axes = new_figure(5.2, 3.6)
    axes.set_title("Residual under gradient descent with η = 1/(2β²)", loc="left", fontsize=10)
    axes.set_xlabel("step")
    axes.set_ylabel("‖r‖")
    measured = [descent.steps[0].residual, *(step.after for step in descent.steps)]
    axes.plot(descent.bounds, color="#777777", linestyle="--", label="the lemma's bound, while its conditions hold")
    axes.plot(measured, color="#0072b2", label="measured")
    axes.set_yscale("log")
    axes.legend(frameon=False)
    return figure


def main() -> None:
    """Descend, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--figure", type=Path, default=Path("theory_descent.png"))
    parser.add_argument("--out", type=Path, default=Path("theory_descent.json"))
    chosen = parser.parse_args()
    descent = watched(chosen.steps)
    found = {
        "alpha": descent.alpha,
        "beta": descent.beta,
        "eta": descent.eta,
        "steps": len(descent.steps),
        "conditions_hold": sum(step.conditions_hold for step in descent.steps),
        "violations": descent.violations,
        "residual_before": descent.steps[0].residual,
        "residual_after": descent.steps[-1].after,
        "bound_after": descent.bounds[-1],
    }
    save_png(figure_of(descent), chosen.figure)
    write_json(chosen.out, found)
    print(chosen.out.read_text(encoding="utf-8"), end="")


if __name__ == "__main__":
    main()
