"""Which samples to keep. Tensors in, indices out: no training loop, no data set, no global state."""

from continual_crust.selection.centrality import centrality
from continual_crust.selection.coreset import Coreset
from continual_crust.selection.crust import RULES, cosine_crust, crust
from continual_crust.selection.facility_location import facility_location
from continual_crust.selection.gradients import GradientSpace, last_layer_gradients
from continual_crust.selection.herding import herding
from continual_crust.selection.label_issues import LabelIssues, find_label_issues
from continual_crust.selection.points import FactoredPoints, Points
from continual_crust.selection.selectors import SELECTORS, SelectorConfig
from continual_crust.selection.spectral import spectral_clusters

__all__ = [
    "RULES",
    "SELECTORS",
    "Coreset",
    "FactoredPoints",
    "GradientSpace",
    "LabelIssues",
    "Points",
    "SelectorConfig",
    "centrality",
    "cosine_crust",
    "crust",
    "facility_location",
    "find_label_issues",
    "herding",
    "last_layer_gradients",
    "spectral_clusters",
]
