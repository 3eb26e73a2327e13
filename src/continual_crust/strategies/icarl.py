"""iCaRL: incremental classifier and representation learning (Rebuffi et al. 2017).

Trains m + n epochs on the new samples together with the exemplars of old classes. With g the sigmoid outputs, g°
those of the network as the last experience left it, and y one-hot, every output is its own binary classifier and each
step minimises the mean over outputs of

    BCE(g, y)    for classes that are not old
    BCE(g, g°)   for old classes, so that they keep answering as before (distillation)

Afterwards k exemplars of each new class are chosen by herding, and an image is given the class whose exemplars' mean is
nearest to it, features scaled to unit length.

Where this differs from Avalanche: features that are all zero stay zero, where Avalanche divides by their length and is
left with one exemplar of that class, or takes every image for it; the old network answers in evaluation mode, without
dropout, as in the authors' own code; class means are not averaged with those of mirrored images, since a mirrored digit
or vehicle is another thing; herding never comes back to a sample. `benchmarks/icarl_difference.py` measures each.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from continual_crust.data.samples import Samples
from continual_crust.selection.selectors import SelectorConfig
from continual_crust.strategies.base import Strategy


class Icarl(Strategy):
    """Distil the old network, classify by the nearest mean of exemplars."""

    name = "icarl"
    summary = "iCaRL: herded exemplars, distillation, nearest-mean classification"
    default_selector = SelectorConfig("herding")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._old_model: nn.Module | None = None
        outputs = self.network.head_weight.shape[0]
        self._is_old_class = torch.zeros(outputs, dtype=torch.bool, device=self.network.device)
        self._class_means: dict[int, Tensor] = {}

    def _own_state(self) -> dict[str, Any]:
        return {
            "old_model": None if self._old_model is None else self._old_model.state_dict(),
            "is_old_class": self._is_old_class,
            "class_means": self._class_means,
        }

    def _restore_own_state(self, own: Mapping[str, Any]) -> None:
        device = self.network.device
        self._old_model = None
        if own["old_model"] is not None:
            self._old_model = self._copy_of_model()
            self._old_model.load_state_dict(own["old_model"])
        self._is_old_class = own["is_old_class"].to(device)
        self._class_means = {label: mean.to(device) for label, mean in own["class_means"].items()}

    def _copy_of_model(self) -> nn.Module:
        return copy.deepcopy(self.network.model).eval().requires_grad_(False)

    def _learn(self, classes: tuple[int, ...], new: Samples) -> None:
        # One that comes again is taught, not distilled. In a copy: an experience that fails changes nothing.
        self._is_old_class = self._is_old_class.clone()
        self._is_old_class[list(classes)] = False
        self._train(self._with_memory(new), self._loss)
        self._remember(classes, new)
        self._class_means = {
            label: self._mean_feature(samples.images) for label, samples in self.memory.items() if len(samples)
        }
        self._old_model = self._copy_of_model()
        self._is_old_class[list(classes)] = True

    def _loss(self, batch: Samples) -> Tensor:
        logits = self.network.logits(batch.images)
        targets = functional.one_hot(batch.labels, logits.shape[1]).to(logits.dtype)
        if self._old_model is not None:
            with torch.no_grad():
                before = self._old_model(self.network.normalized(batch.images)).sigmoid()
            targets = torch.where(self._is_old_class, before, targets)
        losses = functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
        return (batch.weights[:, None] * losses).mean()

    def predict_logits(self, images: Tensor) -> Tensor:
        """Minus the distance to each class's mean exemplar; classes without exemplars are infinitely far."""
        features = self._unit_features(images)
        scores = features.new_full((len(images), self.network.head_weight.shape[0]), -torch.inf)
        for label, mean in self._class_means.items():
            scores[:, label] = -(features - mean).norm(dim=1)
        return scores

    def _mean_feature(self, images: Tensor) -> Tensor:
        return functional.normalize(self._unit_features(images).mean(dim=0), dim=0)

    def _unit_features(self, images: Tensor) -> Tensor:
        return functional.normalize(self._evaluated(images)[0], dim=1)
