"""Selectors by name: the same question (which samples of this class?) put to any rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from continual_crust.errors import InputError, check_types, unknown_name
from continual_crust.selection.coreset import Coreset, checked_size, generator_or_fixed
from continual_crust.selection.crust import RULES, cosine_crust, crust
from continual_crust.selection.gradients import GradientSpace, last_layer_gradients
from continual_crust.selection.herding import herding
from continual_crust.selection.points import Points


@dataclass(frozen=True)
class Candidates:
    """What a network makes of the samples of one class."""

    features: Tensor
    """Input of its last layer, (n, d)."""
    logits: Tensor
    """Its output, (n, classes)."""
    labels: Tensor
    """Given classes, (n,)."""
    weight: Tensor
    """Weights of its last layer, (classes, d)."""
    bias: bool = True
    """Whether its last layer has a bias."""

    def __len__(self) -> int:
        return len(self.labels)

    def gradients(self, space: GradientSpace) -> Points:
        """Last-layer gradients in the given space."""
        return last_layer_gradients(self.features, self.logits, self.labels, self.weight, space, self.bias)


@dataclass(frozen=True)
class SelectorConfig:
    """Which samples of a class to keep, and how to find them."""

    name: str = "crust"
    """One of ``SELECTORS``."""
    rule: str = "centrality"
    """Inside CRUST and CosineCRUST: ``centrality`` (CRUST as released), ``exact_centrality`` (without its rounding) or
    ``facility_location`` (as written)."""
    space: GradientSpace = GradientSpace.PARAMETERS
    """Inside CRUST and CosineCRUST: which gradients are compared."""
    clusters: int = 2
    """CosineCRUST: number of spectral clusters."""
    min_cluster: float = 0.1
    """CosineCRUST's n_A: clusters below this share (under 1) or number (1 or more) of samples are dropped."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "space", GradientSpace(self.space))
        check_types(self)
        if self.name not in SELECTORS:
            raise unknown_name("selector", self.name, SELECTORS)
        if self.rule not in RULES:
            raise unknown_name("selection rule", self.rule, RULES)
        if self.clusters < 1:
            raise InputError(f"clusters is {self.clusters}; give a number of 1 or more.")
        if self.min_cluster < 0:
            raise InputError(f"min_cluster is {self.min_cluster}; give a share below 1 or a number of samples.")

    @property
    def draws_only(self) -> bool:
        """Whether it looks at nothing but the number of samples, so that no network need be asked about them."""
        return self.name in ("random", "reservoir")


def as_config(selector: SelectorConfig | str) -> SelectorConfig:
    """A selector by its name, or as it is."""
    if isinstance(selector, str):
        return SelectorConfig(selector)
    if not isinstance(selector, SelectorConfig):
        raise InputError(f"selector is {selector!r}; give a name such as 'crust', or a SelectorConfig.")
    return selector


def select(
    selector: SelectorConfig | str, candidates: Candidates, size: int, generator: torch.Generator | None = None
) -> Coreset:
    """Choose `size` samples of one class; `generator` is a CPU generator for rules that draw."""
    config = as_config(selector)
    coreset = SELECTORS[config.name](config, candidates, size, generator_or_fixed(generator))
    if not isinstance(coreset, Coreset) or len(coreset) > size:  # anyone may have added it
        found = f"{len(coreset)} samples" if isinstance(coreset, Coreset) else f"a {type(coreset).__name__}"
        raise InputError(f"the selector '{config.name}' came to {found}; let it return a Coreset of at most {size}.")
    return coreset


def _crust(config: SelectorConfig, candidates: Candidates, size: int, generator: torch.Generator) -> Coreset:
    return crust(candidates.gradients(config.space), size, rule=config.rule)


def _cosine_crust(config: SelectorConfig, candidates: Candidates, size: int, generator: torch.Generator) -> Coreset:
    return cosine_crust(
        candidates.gradients(config.space),
        size,
        rule=config.rule,
        clusters=config.clusters,
        min_cluster=config.min_cluster,
        generator=generator,
    )


def _herding(config: SelectorConfig, candidates: Candidates, size: int, generator: torch.Generator) -> Coreset:
    return herding(candidates.features, size)


def _random(config: SelectorConfig, candidates: Candidates, size: int, generator: torch.Generator) -> Coreset:
    size = checked_size(size, candidates.labels)
    return _unweighted(torch.randperm(len(candidates), generator=generator, device="cpu")[:size], candidates)


def _reservoir(config: SelectorConfig, candidates: Candidates, size: int, generator: torch.Generator) -> Coreset:
    """Vitter's algorithm R over the samples in their order: uniform too, but able to run on an endless stream."""
    size = checked_size(size, candidates.labels)
    held = list(range(size))
    draws = torch.rand(len(candidates), dtype=torch.float32, generator=generator, device="cpu").tolist()
    for position in range(size, len(candidates)):
        place = int(draws[position] * (position + 1))
        if place < size:
            held[place] = position
    return _unweighted(torch.tensor(held, dtype=torch.int64, device="cpu"), candidates)


def _unweighted(indices: Tensor, candidates: Candidates) -> Coreset:
    """A choice that knows of no geometry: every sample stands for equally many."""
    size, device = len(indices), candidates.labels.device
    weights = torch.full((size,), len(candidates) / max(size, 1), dtype=torch.float32, device=device)
    return Coreset(indices.to(device), weights, gains=torch.ones(size, dtype=torch.float64, device=device))


Selector = Callable[[SelectorConfig, Candidates, int, torch.Generator], Coreset]
SELECTORS: dict[str, Selector] = {
    "crust": _crust,
    "cosine_crust": _cosine_crust,
    "herding": _herding,
    "reservoir": _reservoir,
    "random": _random,
}
