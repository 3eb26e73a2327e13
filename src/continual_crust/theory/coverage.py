"""What the theorems ask of a choice of samples: little noise in it (ρ), and a Jacobian near that of the class (ε).

At fixed weights other samples are chosen than the learner did, by other rules and in other numbers, to see how the two
demands pull at k.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from continual_crust.randomness import generator_for
from continual_crust.selection.selectors import SelectorConfig, select
from continual_crust.theory.jacobian import compressed
from continual_crust.theory.learner import ClassData, Finished, remembered
from continual_crust.theory.quantities import replacement
from continual_crust.theory.spectrum import singular_values, spectral_norm

SELECTORS: Mapping[str, SelectorConfig] = {
    "centrality": SelectorConfig("crust", rule="centrality"),
    "facility_location": SelectorConfig("crust", rule="facility_location"),
    "random": SelectorConfig("random"),
}
SIZES = (10, 25, 50, 100)


@dataclass(frozen=True)
class Coverage:
    """What a rule makes of a memory of k samples; medians over the classes, for the share of noise the mean."""

    rule: str
    k: int
    noise_in_coreset: float
    relative_epsilon: float
    """ε as a share of ‖J‖."""
    sigma_min: float
    """Smallest singular value of the chosen samples' Jacobian."""


def coverage(
    finished: Finished, selectors: Mapping[str, SelectorConfig] = SELECTORS, sizes: Sequence[int] = SIZES
) -> list[Coverage]:
    """Choose anew at a learner's final weights and measure what the theorems ask of the choice.

    Parameters
    ----------
    finished
        A run with its learner and its stream.
    selectors
        Rules to compare, by the name to give them.
    sizes
        Numbers of samples for each class.
    """
    network = finished.strategy.network
    found: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    for name in remembered(finished):
        data = ClassData.of(finished, name)
        jacobian = compressed(data.jacobian())  # only rows are compared, and often
        norm = spectral_norm(jacobian)
        features, scores = network.evaluate(data.samples.images)
        labels = data.samples.labels.to(network.device)
        candidates = network.candidates(features, scores, labels)
        for rule, selector in selectors.items():
            for size in sizes:
                chosen = select(selector, candidates, size, generator_for(size, f"coverage of {name}")).indices
                stand_in = replacement(jacobian, data.outputs, data.outputs.start, data.inputs, chosen)
                found.setdefault((rule, size), []).append(
                    (
                        float(data.noisy[chosen.cpu()].double().mean()),
                        stand_in.epsilon / norm if norm else 0.0,
                        float(singular_values(stand_in.chosen)[-1]),
                    )
                )
    return [
        Coverage(rule, size, statistics.mean(noise), statistics.median(epsilon), statistics.median(sigma_min))
        for (rule, size), parts in found.items()
        for noise, epsilon, sigma_min in [zip(*parts, strict=True)]
    ]
