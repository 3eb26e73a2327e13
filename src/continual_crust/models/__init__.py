"""Networks, and the one way to reach their last layer."""

from continual_crust.models.last_layer import (
    check_takes,
    checked_head,
    checked_module,
    checked_output,
    features_and_logits,
    last_linear,
)
from continual_crust.models.registry import MODELS, build_model

__all__ = [
    "MODELS",
    "build_model",
    "check_takes",
    "checked_head",
    "checked_module",
    "checked_output",
    "features_and_logits",
    "last_linear",
]
