"""CRUST and CosineCRUST: which samples of one class to remember, from their gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from continual_crust.errors import InputError, is_number, unknown_name
from continual_crust.selection.centrality import centrality
from continual_crust.selection.coreset import Coreset, checked_size
from continual_crust.selection.facility_location import facility_location
from continual_crust.selection.points import Points, checked
from continual_crust.selection.spectral import spectral_clusters

RULES: dict[str, Callable[[Points, int], Coreset]] = {
    "centrality": centrality,
    "exact_centrality": partial(centrality, resolution=0.0),
    "facility_location": facility_location,
}


def crust(points: Points, size: int, *, rule: str = "centrality") -> Coreset:
    """CRUST: choose `size` of one class's gradients.

    Parameters
    ----------
    points
        Gradients of the class's samples, (n, d) or factored.
    size
        Memory for the class.
    rule
        ``"centrality"``, as CRUST was released, which stays clean under noise; ``"exact_centrality"``, the same
        without its rounding, cleaner still and less varied; or ``"facility_location"``, as the paper writes it, which
        covers everything and so buys the noise too.
    """
    return _rule(rule)(points, size)


def cosine_crust(
    points: Points,
    size: int,
    *,
    rule: str = "centrality",
    clusters: int = 2,
    min_cluster: float = 0.1,
    generator: torch.Generator | None = None,
) -> Coreset:
    """CosineCRUST: cluster gradients by direction, drop small clusters, run CRUST inside the others.

    Parameters
    ----------
    points
        Gradients of the class's samples, (n, d) or factored.
    size
        Memory for the class, shared among the clusters that stay in proportion to their size. When those hold fewer
        samples than `size`, the coreset is smaller: what was dropped as noise is not brought back.
    rule
        As in :func:`crust`, inside each cluster.
    clusters
        How many spectral clusters to look for.
    min_cluster
        The paper's n_A: smaller clusters are dropped. Below 1 it is a share of the samples, else a number of them.
        The largest cluster always stays.
    generator
        CPU generator for the clustering's starting points; fixed ones if not given.
    """
    if not is_number(min_cluster) or not min_cluster >= 0:
        raise InputError(f"min_cluster is {min_cluster!r}; give a share below 1 or a number of samples.")
    select = _rule(rule)
    size = checked_size(size, checked(points))
    cluster_of = spectral_clusters(points, clusters, generator)
    populations = torch.bincount(cluster_of, minlength=clusters)
    floor = min_cluster * len(points) if min_cluster < 1 else min_cluster
    kept = [
        cluster
        for cluster, population in enumerate(populations.tolist())
        if population and (population >= floor or cluster == int(populations.argmax()))
    ]
    quotas = proportional_quotas([int(populations[cluster]) for cluster in kept], size)
    parts: list[Coreset] = []
    for cluster, quota in zip(kept, quotas, strict=True):
        members = (cluster_of == cluster).nonzero().flatten()
        part = select(points[members], quota)
        parts.append(Coreset(members[part.indices], part.weights, part.gains))
    if not parts:
        return select(points, 0)
    return Coreset(*(torch.cat([getattr(part, name) for part in parts]) for name in ("indices", "weights", "gains")))


def proportional_quotas(populations: list[int], size: int) -> list[int]:
    """Share `size` among groups in proportion to their populations, never more than a group holds.

    The largest remainders are rounded up, so the quotas add up to `size`, or to everyone if there are fewer.

    >>> proportional_quotas([60, 30, 10], 10)
    [6, 3, 1]
    """
    total = sum(populations)
    size = min(size, total)
    exact = [size * population / total for population in populations] if total else []
    quotas = [int(share) for share in exact]
    by_remainder = sorted(range(len(exact)), key=lambda group: quotas[group] - exact[group])
    for group in by_remainder[: size - sum(quotas)]:
        quotas[group] += 1
    return quotas


def _rule(name: str) -> Callable[[Points, int], Coreset]:
    if not isinstance(name, str) or name not in RULES:
        raise unknown_name("selection rule", name, RULES)
    return RULES[name]
