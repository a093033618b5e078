"""Tasks: what each client minimises, as a function of a flat vector of P numbers."""

from tacit.tasks.quadratic import least_squares, quadratic
from tacit.tasks.task import Task

__all__ = ["Task", "least_squares", "quadratic"]
