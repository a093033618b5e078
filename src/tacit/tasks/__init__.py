"""Tasks: what each client minimises, as a function of a flat vector of P numbers."""

from tacit.tasks.filtering import adaptive_filtering
from tacit.tasks.localization import localization
from tacit.tasks.objective import Objective
from tacit.tasks.quadratic import least_squares, quadratic
from tacit.tasks.task import Task

__all__ = [
    "Objective",
    "Task",
    "adaptive_filtering",
    "least_squares",
    "localization",
    "quadratic",
]
