"""A network for images that come, with a last layer that grows with their classes."""

from __future__ import annotations

import math

import torch
from torch import nn

from continual_crust.models import checked_head
from continual_crust.randomness import generator_for


def with_head(model: nn.Module, classes: int, keep: int, seed: int) -> None:
    """Give a network's last linear layer one output for each class.

    The rows of the first `keep` classes stay as they are, so what the network says about them does not change; the
    others are drawn as PyTorch draws them, from a generator of their own.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    >>> old = model[1].weight.clone()
    >>> with_head(model, 3, keep=2, seed=0)
    >>> model[1].weight.shape, torch.equal(model[1].weight[:2], old)
    (torch.Size([3, 8]), True)
    """
    old = checked_head(model)
    generator = generator_for(seed, f"head from {keep} to {classes}")
    bound = 1 / math.sqrt(old.in_features)
    new = nn.Linear(old.in_features, classes, bias=old.bias is not None)
    with torch.no_grad():
        for fresh, previous in ((new.weight, old.weight), (new.bias, old.bias)):
            if fresh is not None and previous is not None:
                fresh.uniform_(-bound, bound, generator=generator)
                fresh[:keep] = previous[:keep]
    new.to(old.weight.device, old.weight.dtype)
    paths = [path for path, module in model.named_modules(remove_duplicate=False) if module is old]
    for path in paths:
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, new)
