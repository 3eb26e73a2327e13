"""Dark experience replay (Buzzega et al. 2020), DER and DER++.

The memory M holds, beside each image and label, the logits z the network gave it when it was stored. With a batch of
new samples D and an equal batch of M, each step minimises

    L(D)  +  α mean over M and outputs of (f(x) - z)²  +  β L(M)        L: cross-entropy

β = 0 is DER, β > 0 is DER++. Where this differs from the source: its formula adds up over outputs, though its authors'
own code takes their mean, as here; memory is filled for each class after its experience, as for every other method
here, so logits are recorded then, in evaluation mode, and not while training goes on (Avalanche does the same); and
both terms use the same batch of M where the source draws two, again as Avalanche does.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from continual_crust.data.samples import Samples
from continual_crust.errors import InputError
from continual_crust.selection.selectors import SelectorConfig
from continual_crust.strategies.base import Strategy
from continual_crust.strategies.losses import weighted_cross_entropy


@dataclass(frozen=True)
class DerOptions:
    """Hyper-parameters of dark experience replay."""

    alpha: float = 0.1
    """Weight of the distance to the stored logits."""
    beta: float = 0.5
    """Weight of the cross-entropy on the memory; 0 makes it DER, anything above DER++."""

    def __post_init__(self) -> None:
        if self.alpha < 0 or self.beta < 0:
            raise InputError("der needs alpha and beta of 0 or more.")


@dataclass(frozen=True)
class DarkSamples(Samples):
    """Samples with the logits they were stored with."""

    logits: Tensor


def der_loss(new_logits: Tensor, new: Samples, old_logits: Tensor, stored: DarkSamples, options: DerOptions) -> Tensor:
    """The loss above, from the network's outputs on both batches."""
    return (
        weighted_cross_entropy(new_logits, new)
        + options.alpha * functional.mse_loss(old_logits, stored.logits)
        + options.beta * weighted_cross_entropy(old_logits, stored)
    )


class DarkExperienceReplay(Strategy):
    """Replay that also holds the network to what it used to answer."""

    name = "der"
    summary = "Dark ER: replay that also keeps the logits it used to give (DER++ unless beta=0)"
    default_selector = SelectorConfig("random")
    options_type = DerOptions
    options: DerOptions
    samples_type = DarkSamples

    def _learn(self, classes: tuple[int, ...], new: Samples) -> None:
        self._train(new, self._loss, beside=self.remembered())
        self._remember(classes, new)
        for label in classes:
            self.memory[label] = self._with_logits(self.memory[label])

    def _loss(self, new: Samples, old: DarkSamples | None = None) -> Tensor:
        if old is None:
            return self._cross_entropy(new)
        # One pass for both, so that batch normalisation sees the mixture it will be used on.
        logits = self.network.logits(torch.cat([new.images, old.images]))
        return der_loss(logits[: len(new)], new, logits[len(new) :], old, self.options)

    def _with_logits(self, samples: Samples) -> DarkSamples:
        logits = self.predict_logits(samples.images) if len(samples) else self.network.head_weight.new_zeros(0, 0)
        return DarkSamples(samples.images, samples.labels, samples.ids, samples.weights, logits)
