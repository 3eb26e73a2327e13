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
from continual_crust.selection.points import FactoredPoints, Points


class GradientSpace(str, Enum):
    """With respect to what the loss is differentiated."""

    LOGITS = "logits"
    """p - y, one number for each class."""
    INPUT = "input"
    """Wᵀ(p - y), at the last layer's input: what the released CRUST uses."""
    PARAMETERS = "parameters"
    """(p - y) ⊗ [h, 1], at the last layer's weights and bias; kept factored."""

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise unknown_name("gradient space", str(value), [space.value for space in cls])


def last_layer_gradients(
    features: Tensor,
    logits: Tensor,
    labels: Tensor,
    weight: Tensor,
    space: GradientSpace | str = GradientSpace.PARAMETERS,
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
        Its weights W, (classes, d).
    space
        Which gradients to return.

    Raises
    ------
    InputError
        If these shapes do not fit each other, labels are no whole numbers or there is no such space.
    """
    space = GradientSpace(space)
    _check_shapes(features, logits, labels, weight)
    residual = logits.detach().softmax(dim=1)
    residual[torch.arange(len(labels), device=labels.device), labels] -= 1
    if space is GradientSpace.LOGITS:
        return residual
    if space is GradientSpace.INPUT:
        return residual @ weight.detach()
    return FactoredPoints(residual, torch.cat([features.detach(), features.new_ones(len(features), 1)], dim=1))


def _check_shapes(features: Tensor, logits: Tensor, labels: Tensor, weight: Tensor) -> None:
    """Refuse what belongs to different samples or layers: some of it would multiply without complaint."""
    wanted = (len(labels), weight.shape[-1]), (len(labels), len(weight))
    if labels.ndim != 1 or labels.is_floating_point() or weight.ndim != 2:
        raise InputError("labels must be whole numbers of shape (n,) and the weight of shape (classes, d).")
    if (tuple(features.shape), tuple(logits.shape)) != wanted:
        raise InputError(
            f"features of shape {tuple(features.shape)} and logits of shape {tuple(logits.shape)} do not belong to "
            f"{len(labels)} labels and a weight of shape {tuple(weight.shape)}; give {wanted[0]} and {wanted[1]}."
        )
