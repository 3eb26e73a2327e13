"""What can be promised: the two theorems of the paper, measured on a trained learner and its coresets."""

from continual_crust.theory.coverage import Coverage, coverage
from continual_crust.theory.descent import Descent, Step, descend
from continual_crust.theory.learner import ClassReport, TheoryReport, theory_report, watched_descent
from continual_crust.theory.outputs import Outputs
from continual_crust.theory.quantities import Measurement, measure
from continual_crust.theory.theorems import Condition, Iterations, Status, Theorem, theorem_1, theorem_2, theorem_for

__all__ = [
    "ClassReport",
    "Condition",
    "Coverage",
    "Descent",
    "Iterations",
    "Measurement",
    "Outputs",
    "Status",
    "Step",
    "Theorem",
    "TheoryReport",
    "coverage",
    "descend",
    "measure",
    "theorem_1",
    "theorem_2",
    "theorem_for",
    "theory_report",
    "watched_descent",
]
