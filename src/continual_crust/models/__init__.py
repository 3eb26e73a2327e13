"""Networks, and the one way to reach their last layer."""

from continual_crust.models.last_layer import features_and_logits, last_linear
from continual_crust.models.registry import MODELS, build_model

__all__ = ["MODELS", "build_model", "features_and_logits", "last_linear"]
