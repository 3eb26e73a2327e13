"""A lesson: a batch of images that are to be learned, and how far the learning has come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from continual_crust.field.rows import Rows
from continual_crust.selection.trust import Assessment


@dataclass(frozen=True)
class Batch:
    """Images of the classes that are to be learned now, old coresets of those classes among them."""

    rows: Rows
    labels: Tensor
    """Class index of each, int64."""
    ids: Tensor
    """Row of each in the record of its class, int64."""
    new: Tensor
    """Whether it came with this batch, bool."""
    pinned: Tensor
    """Whether a person vouched for it, bool."""
    classes: tuple[int, ...]
    """To be learned; some may have no image."""
    doubtable: Mapping[int, Tensor] = field(default_factory=dict)
    """Of other classes that are known to be noisy, which of the images kept may be forgotten, bool."""

    def of_class(self, label: int) -> Tensor:
        """Positions of a class's images."""
        return (self.labels == label).nonzero().flatten()


@dataclass
class Lesson:
    """How far the learning of a batch has come."""

    stage: int = 1
    """1 learns everything, 2 what looks right, 3 what is kept. The first two are phase 1 of the training."""
    epochs: int = 0
    """Done in this stage."""
    assessments: dict[int, Assessment] = field(default_factory=dict)
    """By class, in the order of the batch: of the first look, from stage 3 on of both; empty until they are made."""
    margins: dict[int, Tensor] = field(default_factory=dict)
    """By class, how far each image's label is ahead of all other classes, added up over the epochs of stage 2."""
    chosen: dict[int, Tensor] = field(default_factory=dict)
    """By class, positions in the batch that are kept; empty until they are chosen."""
    forgotten: dict[int, Tensor] = field(default_factory=dict)
    """By class, also others than those of the batch, `ids` of what was kept and is no longer."""
    optimizer: dict[str, Tensor] = field(default_factory=dict)
    """Where the optimizer stood when the lesson was saved; taken by the stage that goes on."""
    mean: dict[str, Tensor] = field(default_factory=dict)
    """By name, the network's weights on average over the last epochs; empty before these."""

    def begin(self, stage: int) -> None:
        """Go on to the next stage."""
        self.stage, self.epochs, self.optimizer = stage, 0, {}
