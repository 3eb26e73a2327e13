"""Coresets that can shrink: a memory shared by more and more classes gives up its last samples first."""

from __future__ import annotations

import torch

from continual_crust.selection.selectors import Candidates, SelectorConfig, select


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
