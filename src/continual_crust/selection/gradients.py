"""Gradients of the loss at a classifier's last layer, without a backward pass.

For cross-entropy the gradient with respect to the logits is p - y, predicted probabilities minus the one-hot label;
the last layer's input and parameters see it through the layer's weights W and its input h.
"""

from __future__ import annotations

from enum import Enum
from typing import NoReturn

import torch
from torch import Tensor

from continual_crust.errors import InputError, unknown_name
from continual_crust.selection.points import FactoredPoints, Points, check_tensor


class GradientSpace(str, Enum):
    """With respect to what the loss is differentiated."""

    LOGITS = "logits"
    """p - y, one number for each class."""
    INPUT = "input"
    """Wᵀ(p - y), at the last layer's input: what the released CRUST uses."""
    PARAMETERS = "parameters"
    """(p - y) ⊗ [h, 1], at the last layer's weights and bias, or (p - y) ⊗ h without bias; kept factored."""

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise unknown_name("gradient space", value, [space.value for space in cls])


def last_layer_gradients(
    features: Tensor,
    logits: Tensor,
    labels: Tensor,
    weight: Tensor,
    space: GradientSpace | str = GradientSpace.PARAMETERS,
    bias: bool = True,
) -> Points:
    """Per-sample gradients of cross-entropy at the last layer.

    Parameters
    ----------
    features
        Input of the last layer, (n, d).
    logits
        Its output, (n, classes).
    labels
        Given classes, (n,).
    weight
        Its weights W, (classes, d); read only in the space of the layer's input.
    space
        Which gradients to return.
    bias
        Whether the layer has one; read only in the space of its parameters.

    Raises
    ------
    InputError
        If these are not of the same samples, labels are no whole numbers or there is no such space.
    """
    space = GradientSpace(space)
    if not isinstance(bias, bool):
        raise InputError("bias says whether the last layer has one; give True or False, not the tensor itself.")
    labels = _checked_labels(features, logits, labels)
    # In half precision what is left of p - y for well-fitted samples would be rounding.
    residual = logits.detach().softmax(dim=1, dtype=torch.promote_types(logits.dtype, torch.float32))
    residual[torch.arange(len(labels), device=labels.device), labels] -= 1
    if space is GradientSpace.LOGITS:
        return residual
    if space is GradientSpace.INPUT:
        if not isinstance(weight, Tensor) or weight.shape != (logits.shape[1], features.shape[1]):
            raise InputError(
                f"weight is not of shape {(logits.shape[1], features.shape[1])}, as logits and features ask for; give "
                "the weights of the linear layer between them as a tensor."
            )
        return residual @ weight.detach().to(residual.dtype)
    entering = features.detach()
    if bias:
        entering = torch.cat([entering, entering.new_ones(len(entering), 1)], dim=1)
    return FactoredPoints(residual, entering)


def _checked_labels(features: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
    """Refuse what belongs to different samples, as some of it would multiply without complaint; labels in int64."""
    for name, given in (("features", features), ("logits", logits), ("labels", labels)):
        check_tensor(given, name)
    if not logits.is_floating_point():
        raise InputError(f"logits are of type {logits.dtype}; give what leaves the last layer, or logits.float().")
    if features.ndim != 2 or logits.ndim != 2 or labels.ndim != 1 or labels.is_floating_point():
        raise InputError("features and logits must be tables with a row for each sample, and labels whole numbers.")
    if not len(features) == len(logits) == len(labels):
        raise InputError(
            f"{len(features)} features, {len(logits)} logits and {len(labels)} labels are not of the same samples; "
            "give one of each for every sample."
        )
    if labels.dtype == torch.bool:
        raise InputError("labels are true or false; give the number of each sample's class.")
    labels = labels.long()  # PyTorch finds no smallest among some types
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < logits.shape[1]:
        raise InputError(
            f"labels go from {int(labels.min())} to {int(labels.max())}, and logits have {logits.shape[1]} classes; "
            "give numbers from 0 to one less than that."
        )
    return labels
