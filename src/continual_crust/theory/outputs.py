"""From a classifier to the function f the theorems speak about.

The theory has one number for each sample, ``f: R^p -> R^n``, and labels between -1 and 1; a classifier has one score for
each class. Coresets are chosen inside a class, so a class is looked at against the rest: f(x) is the network's score
for that class, the label is +1 (it is one) or -1 (it is not), and the label margin is 2. An image of another class that
was given this label is then exactly what the theory calls a flipped label.

Scores have no natural size, so they are divided by their root mean square over the class's images: f is about 1 where
the learner is at its usual certainty. A common factor on f changes none of the ratios the theorems are made of.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from continual_crust.errors import InputError, unknown_name
from continual_crust.models import last_linear

VIEWS = {
    "score": "the class's own score before softmax, against +1",
    "probability": "the class's probability scaled to -1 to 1, against +1; saturates on a fitted learner",
    "all": "the scores of all classes, against +1 for the given one and -1 for the others",
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
        cls, model: nn.Module, *, view: str = "score", label: int | None = None, dtype: torch.dtype = torch.float64
    ) -> Outputs:
        """Take a copy of a network, in evaluation mode.

        Parameters
        ----------
        model
            A classifier; it is left as it is.
        view
            One of ``VIEWS``: which numbers of the classifier are f.
        label
            The class whose score is meant; not needed for ``"all"``.
        dtype
            Double by default: the smallest singular value is a millionth of the largest, or less.
        """
        if view not in VIEWS:
            raise unknown_name("view", view, VIEWS)
        if label is None and view != "all":
            raise InputError(f"view '{view}' looks at one class; say which by `label`.")
        own = copy.deepcopy(model).eval().to(dtype)
        start = torch.cat([parameter.detach().flatten() for parameter in own.parameters()])
        if not torch.isfinite(start).all():
            raise InputError("the network's weights hold NaN or infinity: it has diverged; train with a lower rate.")
        return cls(own, start, view, label, scale=1.0)

    def scaled_to(self, inputs: Tensor) -> Outputs:
        """The same function in units of its root mean square over these inputs; probabilities have their unit."""
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
        if self.view == "all":
            return scores / self.scale
        if self.view == "probability":
            scores = 2 * scores.softmax(dim=1) - 1
        return scores[:, self.label, None] / self.scale

    def targets(self, labels: Tensor) -> Tensor:
        """What f should be for samples that were given these labels, (n, outputs of a sample)."""
        classes = [self.label] if self.view != "all" else range(last_linear(self.model).out_features)
        levels = [torch.where(labels == label, 1.0, -1.0) for label in classes]
        return torch.stack(levels, dim=1).to(self.start)
