"""Learn new classes one after another from partly wrong data, without forgetting the old ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from continual_crust.field.learner import ContinualLearner

__version__ = "0.1.0"
__all__ = ["ContinualLearner", "__version__"]


def __getattr__(name: str) -> Any:
    """`ContinualLearner`, imported when it is first asked for: importing the package alone costs nothing."""
    if name == "ContinualLearner":
        from continual_crust.field.learner import ContinualLearner

        return ContinualLearner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
