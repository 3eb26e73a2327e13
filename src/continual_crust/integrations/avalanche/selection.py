"""Selectors as Avalanche exemplar selection strategies."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import torch
from avalanche.training.storage_policy import ExemplarsSelectionStrategy

from continual_crust.integrations.avalanche.network import candidates_from, positions_by_group, unseen_candidates
from continual_crust.randomness import generator_for, seed_for
from continual_crust.selection.selectors import Candidates, SelectorConfig, as_config, select


class CoresetSelection(ExemplarsSelectionStrategy):  # type: ignore[misc]
    """Any selector as an Avalanche exemplar selection strategy, for `ParametricBuffer` and others.

    Avalanche asks for an order of *all* samples and cuts it off where the memory ends. Samples that the selector
    would not take at any size, as CosineCRUST drops small clusters, come last. Where a buffer is not grouped by class,
    classes take turns, so that it is balanced wherever it is cut.

    Parameters
    ----------
    selector
        A name among ``SELECTORS``, such as ``"crust"`` or ``"cosine_crust"``, or a whole configuration.
    seed
        For selectors that draw. The program's own random state is left alone.
    """

    def __init__(self, selector: SelectorConfig | str = "crust", *, seed: int = 0) -> None:
        self.selector = as_config(selector)
        self.seed = seed
        self._questions = 0

    def make_sorted_indices(self, strategy: Any, data: Any) -> list[int]:
        """Positions of all samples, those to keep longest first."""
        turns = []
        for positions in positions_by_group(data).values():
            order = self.coreset(strategy, data.subset(positions), len(positions))
            last = sorted(set(range(len(positions))).difference(order))
            turns.append([positions[index] for index in (*order, *last)])
        return [position for turn in zip_longest(*turns) for position in turn if position is not None]

    def coreset(self, strategy: Any, data: Any, size: int, *, ordered: bool = True) -> list[int]:
        """Positions of at most `size` samples of a data set of one task and class.

        Ordered means that the most valuable come first, so that the coreset may shrink; without, it costs less.
        """
        # A count of questions instead of a generator, because checkpoints cannot always hold generators.
        self._questions += 1
        if size == 0 or len(data) == 0:
            return []
        purpose = f"avalanche/{self._questions}"
        if self.selector.draws_only:
            candidates = unseen_candidates(data)
        else:
            candidates = candidates_from(strategy, data, seed_for(self.seed, f"{purpose}/transforms"))
        generator = generator_for(self.seed, purpose)
        if ordered:
            return ordered_coreset(self.selector, candidates, size, generator)
        return [int(index) for index in select(self.selector, candidates, size, generator).indices]


def ordered_coreset(config: SelectorConfig, candidates: Candidates, size: int, generator: torch.Generator) -> list[int]:
    """Positions of a coreset of one class, such that the first few of them are a coreset too.

    The set is the selector's own for `size`. Not every selector lists its choice in such an order: CosineCRUST goes
    through one cluster after the other, a reservoir through the samples. So the same question is asked for 1, 2, 4, …
    samples, from the same random numbers, and who is chosen early comes first. Selectors that choose one by one keep
    their order.
    """
    start = generator.get_state()
    chosen = select(config, candidates, size, generator).indices.tolist()
    end = generator.get_state()
    order: dict[int, None] = {}
    smaller = 1
    while smaller < len(chosen):
        generator.set_state(start)
        order.update(dict.fromkeys(select(config, candidates, smaller, generator).indices.tolist()))
        smaller *= 2
    generator.set_state(end)
    members = set(chosen)
    return [position for position in dict.fromkeys([*order, *chosen]) if position in members]
