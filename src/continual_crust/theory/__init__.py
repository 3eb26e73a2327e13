"""What can be promised: the two theorems of the paper, measured on a trained learner and its coresets."""

from continual_crust.theory.coverage import Coverage, coverage
from continual_crust.theory.descent import Descent, Step, descend
from continual_crust.theory.jacobian import Combination, Dense, Jacobian, Matrix, Weighted, difference
from continual_crust.theory.learner import ClassReport, TheoryReport, theory_report, watched_descent
from continual_crust.theory.outputs import Outputs
from continual_crust.theory.quantities import Measurement, average_jacobian, measure
from continual_crust.theory.spectrum import gram, lanczos, singular_values, spectral_norm
from continual_crust.theory.theorems import (
    Condition,
    Iterations,
    Status,
    Theorem,
    contraction,
    theorem_1,
    theorem_2,
    theorem_for,
)

__all__ = [
    "ClassReport",
    "Combination",
    "Condition",
    "Coverage",
    "Dense",
    "Descent",
    "Iterations",
    "Jacobian",
    "Matrix",
    "Measurement",
    "Outputs",
    "Status",
    "Step",
    "Theorem",
    "TheoryReport",
    "Weighted",
    "average_jacobian",
    "contraction",
    "coverage",
    "descend",
    "difference",
    "gram",
    "lanczos",
    "measure",
    "singular_values",
    "spectral_norm",
    "theorem_1",
    "theorem_2",
    "theorem_for",
    "theory_report",
    "watched_descent",
]
