"""What learning was worth."""

from continual_crust.evaluation.metrics import (
    accuracies,
    average_accuracy,
    forgetting,
    mean_purity,
    purity_per_class,
)

__all__ = ["accuracies", "average_accuracy", "forgetting", "mean_purity", "purity_per_class"]
