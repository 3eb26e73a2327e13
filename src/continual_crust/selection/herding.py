"""Herding: the exemplars whose mean stays closest to the mean of the class (Welling 2009; Rebuffi et al. 2017)."""

from __future__ import annotations

import torch

from continual_crust.errors import InputError
from continual_crust.selection.coreset import Coreset, checked_size, coreset_of
from continual_crust.selection.points import FactoredPoints, lengths_or_one, prepared


def herding(features: torch.Tensor, size: int) -> Coreset:
    """Choose samples one by one so that the mean of those chosen approximates the mean of all features.

    Parameters
    ----------
    features
        An (n, d) tensor. Scaled to unit length first, as iCaRL does; zero vectors stay zero.
    size
        How many to choose; all n if it is larger.

    Notes
    -----
    The t-th choice minimises |μ - (Σ chosen + x) / t|. `gains` is by how much each choice brought the mean nearer,
    which can be negative. Ties go to the lower index.

    Examples
    --------
    >>> herding(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), size=1).indices.tolist()
    [2]
    """
    if isinstance(features, FactoredPoints):
        raise InputError("herding compares the features themselves; give them as a tensor, not as FactoredPoints.")
    prepared(features)
    size = checked_size(size, features)
    unit = features.detach().double()
    unit = unit / lengths_or_one(unit)
    mean = unit.mean(dim=0)
    total = torch.zeros_like(mean)
    chosen: list[int] = []
    gains: list[float] = []
    distance = float(mean.norm())
    open_to_choice = torch.zeros(len(unit), dtype=unit.dtype, device=unit.device)
    for step in range(1, size + 1):
        distances = (mean - (total + unit) / step).norm(dim=1) + open_to_choice
        pick = int(distances.argmin())
        total += unit[pick]
        open_to_choice[pick] = torch.inf
        chosen.append(pick)
        previous, distance = distance, float((mean - total / step).norm())
        gains.append(previous - distance)
    indices = torch.tensor(chosen, dtype=torch.int64, device=features.device)
    return coreset_of(unit.float(), indices, torch.tensor(gains, dtype=torch.float64, device=features.device))
