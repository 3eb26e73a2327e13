"""Which given labels are likely wrong: indices in order of doubt, for people to look at or to leave out.

Either from what one network makes of its own training samples, by way of coresets, or from probabilities of networks
that have not seen the samples. Both say how close a sample is to each class, and a label is as good as its class's part
against the best other class:

    quality = closeness to the given class / (closeness to the given class + closeness to the best other class)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from continual_crust.errors import InputError, is_number
from continual_crust.selection.centrality import centrality
from continual_crust.selection.gradients import last_layer_gradients
from continual_crust.selection.points import blocks, check_tensor, distances, prepared

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers: TypeAlias = Tensor | NDArray[Any]

CORE_SHARE = 0.5
"""Share of a class that is trusted: up to half of a class may be wrong."""
NEIGHBOURS = 5
"""How many trusted samples of a class say how far a sample is from it."""
NEARER = 0.5
"""From features, a label is doubted when another class is nearer."""
TWICE_AS_LIKELY = 1 / 3
"""From probabilities, a label is doubted when another class is twice as likely."""

ROUNDING = 1e-2
"""How much a probability may be above 1, where it was computed or averaged in low precision."""


@dataclass(frozen=True)
class LabelIssues:
    """Which labels are likely wrong, and how well each fits. All tensors are on the CPU."""

    mask: Tensor
    """Whether the label is likely wrong, bool (n,)."""
    indices: Tensor
    """The samples whose label is likely wrong, most doubtful first, int64."""
    quality: Tensor
    """How well the label fits, from 0 to 1, float64 (n,)."""
    suggested: Tensor
    """The class that fits best, the given one included, int64 (n,)."""

    def __len__(self) -> int:
        return len(self.indices)


def find_label_issues(
    labels: Numbers,
    probabilities: Numbers | None = None,
    *,
    features: Numbers | None = None,
    logits: Numbers | None = None,
    threshold: float | None = None,
) -> LabelIssues:
    """Find samples whose given label is likely wrong.

    Parameters
    ----------
    labels
        Given classes 0, 1, …, (n,).
    probabilities
        Of each class, (n, classes), from networks that were not trained on the sample they judge, as by
        cross-validation. Give either these or the next two.
    features, logits
        Input, (n, d), and output, (n, classes), of a network's last layer for the samples it was trained on. It should
        not have been trained until it knows every wrong label by heart.
    threshold
        Labels of lower quality are reported. By default 1/2 for features, where another class is nearer, and 1/3 for
        probabilities, where another class is twice as likely.

    Returns
    -------
    LabelIssues
        Mask, ranked indices, and for every sample quality and best class.

    Notes
    -----
    From features: of each class the half with the most central last-layer gradients is trusted, as CRUST would choose
    it. A sample's distance to a class is the mean over its five nearest trusted samples, itself left out, between
    features scaled to length one. Every class is asked alike, so small ones are not outvoted. The only
    sample of a class cannot be doubted. Distances are computed block by block: n² of them, but never all at once.

    Examples
    --------
    >>> import torch
    >>> probabilities = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.05, 0.95]])
    >>> issues = find_label_issues(torch.tensor([0, 0, 0, 0]), probabilities)
    >>> issues.indices.tolist(), issues.suggested.tolist()
    ([3, 1], [0, 1, 0, 1])
    """
    given = _tensor(labels, "labels", "whole numbers 0, 1, … for the classes")
    if probabilities is not None and features is None and logits is None:
        likely = _checked(probabilities, "probabilities", given).double()
        given = _checked_labels(given, likely.shape[1])
        if (likely < 0).any():
            raise InputError("some probabilities are negative; give the output of a softmax, not logits.")
        if (likely > 1 + ROUNDING).any():
            raise InputError(
                f"some probabilities are above 1, up to {float(likely.max()):g}; give the output of a softmax."
            )
        own, other, rival = _own_and_best_other(likely, given)
        return _issues(given, own, other, rival, TWICE_AS_LIKELY if threshold is None else threshold)
    if probabilities is None and features is not None and logits is not None:
        outputs, inputs = _checked(logits, "logits", given), _checked(features, "features", given)
        given = _checked_labels(given, outputs.shape[1])
        own, other, rival = _own_and_best_other(-_class_distances(inputs, outputs, given), given)
        # The nearer one class, the more speaks against the other.
        return _issues(given, -other, -own, rival, NEARER if threshold is None else threshold)
    raise InputError("label issues need either probabilities, or features together with logits; give one of them.")


def _class_distances(features: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
    """How far each sample is from the trusted samples of each class, (n, classes), float64.

    Infinite for classes without samples, and zero for the given class of its only sample.
    """
    points = prepared(functional.normalize(features.float(), dim=1))
    result = torch.full(logits.shape, math.inf, dtype=torch.float64, device="cpu")
    present = labels.unique().tolist()
    if len(present) == 1:
        raise InputError(f"all labels are {present[0]}; from features a label can only be doubted for another class's.")
    for label in present:
        members = (labels == label).nonzero().flatten()
        # The weights play no part in this space of gradients.
        gradients = last_layer_gradients(features[members], logits[members], labels[members], logits.new_zeros(0))
        trusted = members[centrality(gradients, max(2, math.ceil(CORE_SHARE * len(members)))).indices]
        column = torch.full_like(labels, -1)
        column[trusted] = torch.arange(len(trusted), device=trusted.device)
        core = points[trusted]
        for rows in blocks(len(points), len(trusted)):
            far = distances(points[rows], core)
            itself = (column[rows] >= 0).nonzero().flatten()
            far[itself, column[rows][itself]] = math.inf
            nearest = far.topk(min(NEIGHBOURS, len(trusted)), dim=1, largest=False).values.double()
            others = nearest.isfinite()
            result[rows, label] = nearest.where(others, 0).sum(dim=1) / others.sum(dim=1).clamp(min=1)
    return result


def _own_and_best_other(fit: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """How well the given class fits, how well the best other one does, and which that is."""
    given = labels[:, None]
    best_other = fit.scatter(1, given, -math.inf).max(dim=1)
    return fit.gather(1, given).flatten(), best_other.values, best_other.indices


def _issues(labels: Tensor, for_it: Tensor, against_it: Tensor, rival: Tensor, threshold: float) -> LabelIssues:
    if not is_number(threshold) or not 0 <= threshold <= 1:
        raise InputError(f"threshold is {threshold!r}; qualities lie between 0 and 1, so give a number between them.")
    quality = (for_it / (for_it + against_it)).nan_to_num(0.5)  # nothing on either side: nothing to be said
    mask = quality < threshold
    doubtful = mask.nonzero().flatten()
    indices = doubtful[quality[doubtful].argsort(stable=True)]
    return LabelIssues(mask, indices, quality, torch.where(quality < 0.5, rival, labels))


def _tensor(values: Numbers, name: str, wanted: str) -> Tensor:
    try:
        if not isinstance(values, Tensor | list | tuple):
            # PyTorch takes no tables of pandas and no arrays that lie backwards, and warns of what it may not change.
            values = np.require(values, requirements=["C", "W"])
            values = values.astype(values.dtype.newbyteorder("="), copy=False)  # nor bytes in another machine's order
        tensor = values if isinstance(values, Tensor) else torch.as_tensor(values, device="cpu")
    except (TypeError, ValueError):  # text, objects, rows of different lengths
        kind = getattr(values, "dtype", type(values).__name__)
        raise InputError(f"{name} are of type {kind}; give {wanted}.") from None
    tensor = tensor if tensor.layout == torch.strided else tensor.to_dense()
    check_tensor(tensor, name)
    return tensor.detach().cpu()


def _checked(values: Numbers, name: str, labels: Tensor) -> Tensor:
    tensor = _tensor(values, name, "numbers")
    tensor = tensor if tensor.is_floating_point() else tensor.double()
    if labels.ndim != 1 or tensor.ndim != 2 or len(tensor) != len(labels):
        raise InputError(
            f"{name} have shape {tuple(tensor.shape)} and labels {tuple(labels.shape)}; give one row for each label."
        )
    bad = ~tensor.isfinite().all(dim=1)
    if bad.any():
        raise InputError(
            f"{name} hold NaN or infinity in {int(bad.sum())} of {len(bad)} rows (the first is row "
            f"{int(bad.int().argmax())}); leave those samples out, or train with a lower learning rate."
        )
    return tensor


def _checked_labels(labels: Tensor, classes: int) -> Tensor:
    if classes < 2:
        raise InputError("there is one column only; a label can be wrong where there are two classes or more.")
    if labels.is_floating_point() or labels.dtype is torch.bool:
        raise InputError(f"labels are of type {labels.dtype}; give whole numbers 0, 1, … for the classes.")
    labels = labels.long()  # PyTorch finds no smallest among some types
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise InputError(
            f"labels reach from {int(labels.min())} to {int(labels.max())}, but there are columns for classes 0 to "
            f"{classes - 1} only."
        )
    return labels
