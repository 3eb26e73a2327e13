"""The loss that most strategies share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from continual_crust.data.samples import Samples
from continual_crust.strategies.network import Network

Loss = Callable[..., Tensor]
"""From one batch of each set of samples that is trained on to a number. It may depend on nothing else that changes
during a phase, except through tensors changed in place: on a GPU it is recorded once and replayed."""


def weighted_cross_entropy(logits: Tensor, batch: Samples) -> Tensor:
    """Mean cross-entropy of a batch, each sample by its weight."""
    return (batch.weights * functional.cross_entropy(logits, batch.labels, reduction="none")).mean()


@dataclass(frozen=True)
class CrossEntropy:
    """Weighted cross-entropy of a network. A type of its own, by which `whole_step` knows the loss it can compute."""

    network: Network

    def __call__(self, *batches: Samples) -> Tensor:
        batch = batches[0] if len(batches) == 1 else Samples.concatenate(batches)
        return weighted_cross_entropy(self.network.logits(batch.images), batch)
