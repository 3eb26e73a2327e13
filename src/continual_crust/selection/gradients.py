"""Gradients of the loss at a classifier's last layer, without a backward pass.

For cross-entropy the gradient with respect to the logits is p - y, predicted probabilities minus the one-hot label;
the last layer's input and parameters see it through the layer's weights W and its input h.
"""

from __future__ import annotations

from enum import Enum

import torch
from torch import Tensor

from continual_crust.selection.points import FactoredPoints, Points


class GradientSpace(str, Enum):
    """With respect to what the loss is differentiated."""

    LOGITS = "logits"
    """p - y, one number for each class."""
    INPUT = "input"
    """Wᵀ(p - y), at the last layer's input: what the released CRUST uses."""
    PARAMETERS = "parameters"
    """(p - y) ⊗ [h, 1], at the last layer's weights and bias; kept factored."""


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
    """
    residual = logits.detach().softmax(dim=1)
    residual[torch.arange(len(labels), device=labels.device), labels] -= 1
    space = GradientSpace(space)
    if space is GradientSpace.LOGITS:
        return residual
    if space is GradientSpace.INPUT:
        return residual @ weight.detach()
    return FactoredPoints(residual, torch.cat([features.detach(), features.new_ones(len(features), 1)], dim=1))
