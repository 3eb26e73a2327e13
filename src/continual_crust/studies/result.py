"""What a run leaves behind."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path

from continual_crust import __version__
from continual_crust.errors import InputError
from continual_crust.writing import write_json


@dataclass(frozen=True)
class RunResult:
    """The numbers of one run, as in its ``result.json``."""

    method: str
    dataset: str
    noise: str
    seed: int
    accuracy_matrix: list[list[float]]
    """Row i, column j: accuracy on experience j's test images after training on experience i."""
    accuracy: float
    """Mean over experiences after the last one."""
    forgetting: float | None
    """Mean loss of accuracy over all pairs of experiences; None where there is no pair."""
    purity: float | None
    """Mean over classes of the clean share of the memory; None where nothing is remembered."""
    purity_per_class: dict[str, float]
    """By class name, after the last experience."""
    purity_per_experience: list[float | None]
    """Mean purity of the new classes' memory as each experience leaves it."""
    experiences: list[list[str]]
    """Names of the classes each experience brought."""
    seconds: float
    """Training and selection, without evaluation."""
    selection_seconds: float
    """Selection alone."""
    device: str
    versions: dict[str, str]
    memory_sizes: dict[str, int] = field(default_factory=dict)
    """Samples kept of each class, by class name; CosineCRUST may keep fewer than allowed."""
    revision: str = "2"
    """State of the program, see :func:`continual_crust.studies.study.revision_of`; "2" in results that do not tell."""
    data: str = ""
    """Fingerprint of the data set; empty in results that do not tell."""

    def write(self, path: Path) -> None:
        """Store as JSON; NaN, which JSON lacks, becomes null."""
        write_json(path, asdict(self))

    def is_of(self, data: str) -> bool:
        """Whether the data set may be the one with this fingerprint; no fingerprint is any data set's."""
        return not self.data or not data or self.data == data

    @classmethod
    def read(cls, path: Path) -> RunResult:
        """Load what :meth:`write` stored."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise InputError(f"there is no result at {path}; give the folder of a finished run.") from None
        except (ValueError, TypeError, RecursionError) as error:
            raise InputError(f"{path} is not a result of a run ({error}); run it again.") from None


def versions() -> dict[str, str]:
    """What the numbers may depend on."""
    libraries = {name: version(name) for name in ("torch", "torchvision", "numpy")}
    return {"continual_crust": __version__, "python": platform.python_version(), **libraries}
