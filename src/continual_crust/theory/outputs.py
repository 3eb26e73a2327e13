"""From a classifier to the function f the theorems speak about.

The theory has one number for each sample, ``f: R^p -> R^n``, and labels between -1 and 1; a classifier has one score
for each class. Coresets are chosen inside a class, so a class is looked at against the rest: f(x) is the log-odds the
network gives the class, the label is +1 (it is one) or -1 (it is not), and the label margin is 2. An image of another
class that was given this label is then exactly what the theory calls a flipped label, and f > 0 is a correct answer.

Why log-odds: a softmax network's raw scores mean nothing without one another, and its probabilities stop moving where
it is certain, which makes every Jacobian of a fitted learner nearly zero. Log-odds have no natural size, so they are
divided by their root mean square over the coreset: f is about 1 where the learner is as certain as it usually is of
what it remembers. A common factor on f changes none of the ratios the theorems are made of.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from continual_crust.errors import InputError, unknown_name
from continual_crust.models import last_linear

VIEWS = {
    "log_odds": "log-odds of the class, against +1",
    "probability": "probability of the class scaled to -1 to 1, against +1; hardly moves on a fitted learner",
    "all": "log-odds of every class, against +1 for the given one and -1 for the others",
    "raw": "whatever the network puts out, for networks that are no classifiers; targets are yours",
}
MARGIN = 2.0
"""Distance between the labels -1 and +1."""


@dataclass(frozen=True)
class Outputs:
    """A network as a function of its parameters, written as one long vector, and of a batch of inputs.

    >>> outputs = Outputs.of(nn.Linear(2, 3), view="all")
    >>> outputs.start.shape
    torch.Size([9])
    >>> outputs(outputs.start, torch.zeros(5, 2, dtype=torch.float64)).shape
    torch.Size([5, 3])
    """

    model: nn.Module
    start: Tensor
    """The parameters as they are, (p,)."""
    view: str
    label: int | None
    scale: float

    @classmethod
    def of(
        cls, model: nn.Module, *, view: str = "log_odds", label: int | None = None, dtype: torch.dtype = torch.float64
    ) -> Outputs:
        """Take a copy of a network, in evaluation mode.

        Parameters
        ----------
        model
            A classifier; it is left as it is.
        view
            One of ``VIEWS``: which numbers of the classifier are f.
        label
            The class that is looked at; not for ``"all"`` and ``"raw"``, which look at none.
        dtype
            Double by default: the smallest singular value is a millionth of the largest, or less.
        """
        if view not in VIEWS:
            raise unknown_name("view", view, VIEWS)
        if (label is None) != (view in ("all", "raw")):
            raise InputError(f"view '{view}' and label {label} do not go together; 'all' and 'raw' take no label.")
        own = copy.deepcopy(model).eval().to(dtype)
        start = torch.cat([parameter.detach().flatten() for parameter in own.parameters()])
        if not torch.isfinite(start).all():
            raise InputError("the network's weights hold NaN or infinity: it has diverged; train with a lower rate.")
        return cls(own, start, view, label, scale=1.0)

    def scaled_to(self, inputs: Tensor) -> Outputs:
        """The function divided by its root mean square over these inputs; probabilities, which have a unit, stay."""
        if self.view == "probability" or not len(inputs):
            return self
        with torch.no_grad():
            squares = [self(self.start, part).square().sum() for part in inputs.split(256)]
            values = len(inputs) * self(self.start, inputs[:1]).shape[1]
        size = float((torch.stack(squares).sum() / values).sqrt())
        return self if size == 0 else Outputs(self.model, self.start, self.view, self.label, self.scale * size)

    def __call__(self, parameters: Tensor, inputs: Tensor) -> Tensor:
        """f for a batch, (n, outputs of a sample)."""
        names, shapes = zip(*((name, own.shape) for name, own in self.model.named_parameters()), strict=True)
        parts = parameters.split([shape.numel() for shape in shapes])
        named = {name: part.view(shape) for name, part, shape in zip(names, parts, shapes, strict=True)}
        scores: Tensor = functional_call(self.model, named, (inputs,))
        if self.view == "raw":
            return scores / self.scale
        if self.view == "probability":
            return 2 * scores.softmax(dim=1)[:, self.label, None] - 1
        return torch.stack([_log_odds(scores, label) for label in self._labels], dim=1) / self.scale

    def targets(self, labels: Tensor) -> Tensor:
        """What f should be for samples that were given these labels, (n, outputs of a sample)."""
        return torch.stack([torch.where(labels == label, 1.0, -1.0) for label in self._labels], dim=1).to(self.start)

    @property
    def _labels(self) -> Sequence[int]:
        return range(last_linear(self.model).out_features) if self.label is None else (self.label,)


def _log_odds(scores: Tensor, label: int) -> Tensor:
    """log p / (1 - p), without the probabilities, which may round to 0 or 1."""
    others = torch.cat([scores[:, :label], scores[:, label + 1 :]], dim=1)
    return scores[:, label] - others.logsumexp(dim=1)
