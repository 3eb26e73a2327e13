"""What an Avalanche learner's network makes of an Avalanche data set."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from avalanche.models.utils import avalanche_forward
from torch import Tensor, nn
from torch.utils.data import DataLoader

from continual_crust.errors import InputError
from continual_crust.randomness import PrivateRandomness
from continual_crust.selection.selectors import Candidates

Group = tuple[int, int]
"""Task label and class: in Avalanche two tasks may give the same number to different classes."""

BATCH_SIZE = 128
"""For learners that do not say how many samples they evaluate at a time."""


def positions_by_group(data: Any) -> dict[Group, list[int]]:
    """Where the samples of each task and class are, in order of first appearance."""
    if not len(data):
        return {}
    if getattr(data, "targets", None) is None:
        raise InputError(
            "the data set has no targets, which coresets need; make it with Avalanche's as_classification_dataset."
        )
    tasks = getattr(data, "targets_task_labels", None)
    positions: dict[Group, list[int]] = defaultdict(list)
    for position, label in enumerate(data.targets):
        positions[(0 if tasks is None else int(tasks[position]), int(label))].append(position)
    return dict(positions)


def unseen_candidates(data: Any) -> Candidates:
    """The samples of a data set for selectors that look at nothing but their number."""
    nothing = torch.zeros(0, 0, device="cpu")
    return Candidates(nothing, nothing, torch.tensor(list(data.targets), device="cpu"), nothing)


def candidates_from(learner: Any, data: Any, seed: int) -> Candidates:
    """Run a learner's network over the samples of one task, in evaluation mode and with evaluation transforms.

    Leaves the mode of every module and the program's random state as they were.

    Parameters
    ----------
    learner
        An Avalanche strategy, or any agent with a `model`.
    data
        An Avalanche data set, not empty.
    seed
        For transforms that draw even in evaluation.
    """
    model: nn.Module = learner.model
    device = next(model.parameters()).device
    loader = DataLoader(
        data.eval(),
        batch_size=getattr(learner, "eval_mb_size", BATCH_SIZE),
        collate_fn=getattr(data, "collate_fn", None),
    )
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    randomness = PrivateRandomness(seed, device)
    with torch.no_grad(), randomness.in_force(), _evaluation_mode(model), _LastLinear(model) as last:
        for batch in loader:
            # Images, labels, and in task-aware benchmarks the task labels at the end.
            images, labels, tasks = batch[0].to(device), batch[1].to(device), batch[-1].to(device)
            parts.append((*last.features_and_logits(images, labels, tasks), labels))
    features, logits, labels = (torch.cat(column) for column in zip(*parts, strict=True))
    return Candidates(features, logits, labels, last.layer.weight.detach(), last.layer.bias is not None)


class _LastLinear:
    """Watches the linear layers of a network to catch the one that makes its output.

    Avalanche's growing classifiers replace unused outputs by a constant, and its multi-head ones append zeros for
    classes of other tasks; so each output of the layer must come out as it is or be one constant, and those of the
    given classes must come out as they are.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        self._seen: tuple[nn.Linear, Tensor, Tensor] | None = None

    def __enter__(self) -> _LastLinear:
        for layer in self._model.modules():
            if isinstance(layer, nn.Linear):
                self._hooks.append(layer.register_forward_hook(self._notice))
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _notice(self, layer: nn.Linear, entering: tuple[Tensor], leaving: Tensor) -> None:
        self._seen = (layer, entering[0], leaving.clone())  # what comes behind may change it in place

    @property
    def layer(self) -> nn.Linear:
        """The layer that made the last output."""
        assert self._seen is not None
        return self._seen[0]

    def features_and_logits(self, images: Tensor, labels: Tensor, tasks: Tensor) -> tuple[Tensor, Tensor]:
        """Input and output of the last layer for a batch of one task; outputs that are switched off stay so."""
        self._seen = None
        output: Tensor = avalanche_forward(self._model, images, tasks)
        if isinstance(output, Tensor) and output.isnan().any():
            raise InputError("the network's output holds NaN: it has diverged, so lower its learning rate.")
        if self._seen is not None:
            _, features, leaving = self._seen
            width = leaving.shape[-1]
            if output.ndim == leaving.ndim == 2 and len(labels) == len(leaving) and width <= output.shape[1]:
                logits = output[:, :width]
                as_they_are = (logits == leaving).all(dim=0)
                known = as_they_are | (logits == logits[:1]).all(dim=0)
                if int(labels.max()) < width and bool(known.all() & as_they_are[labels].all()):
                    return features, logits
        raise InputError(
            f"{type(self._model).__name__} does not end in a linear layer, which coresets by gradients need; give a "
            "network whose output for each class is the output of one nn.Linear, without softmax or other layers "
            "behind it."
        )


@contextmanager
def _evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while. Each module returns to its own: a frozen one need not be in the model's mode."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
