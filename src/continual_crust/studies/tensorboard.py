"""A run's measures for TensorBoard, while it goes on."""

from __future__ import annotations

from pathlib import Path

from continual_crust.errors import InputError
from continual_crust.studies.run import Progress


class Scalars:
    """Writes the loss after every epoch, and accuracy and purity after every experience."""

    def __init__(self, folder: Path, epochs_per_experience: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise InputError("--tensorboard needs TensorBoard; pip install 'continual-crust[tensorboard]'.") from None
        self._writer = SummaryWriter(str(folder))
        self._epochs_per_experience = epochs_per_experience
        self._epochs = 0

    def before_experience(self, number: int, count: int) -> None:
        """Count epochs from the beginning of the run, also in one that goes on after a stop."""
        self._epochs = number * self._epochs_per_experience

    def after_epoch(self, phase: str, epoch: int, epochs: int, loss: float) -> None:
        """The mean loss of an epoch, under its phase."""
        self._epochs += 1
        self._writer.add_scalar(f"loss/{phase}", loss, self._epochs)

    def after_experience(self, learned: int, count: int, progress: Progress) -> None:
        """Accuracy on what was learned so far, together and apart, and how clean the new memory is."""
        row = progress.accuracy_matrix[-1]
        # Joint training learns everything in one experience, however many there are to test.
        row = row if learned == count else row[:learned]
        self._writer.add_scalar("accuracy/seen so far", sum(row) / len(row), learned)
        for number, accuracy in enumerate(row, start=1):
            self._writer.add_scalar(f"accuracy/experience {number}", accuracy, learned)
        if progress.purities[-1] is not None:
            self._writer.add_scalar("purity/new classes", progress.purities[-1], learned)
        self._writer.flush()

    def close(self) -> None:
        """Nothing more will come."""
        self._writer.close()
