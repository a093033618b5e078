"""Dual protection: the options that DSG-RMS, EDSG-RMS and DSGT-RMS have in common.

Gradients are multiplied by a random matrix (privacy/matrix_step.py), messages shifted by a protection vector
(privacy/protection.py). Where a theorem bounds τ, it is shown, and warned about when exceeded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tacit.algorithms import tau_bounds
from tacit.algorithms.algorithm import Algorithm
from tacit.core.schedules import Rate, check_rate
from tacit.graph import Graph
from tacit.privacy.matrix_step import MatrixStep, check_matrix
from tacit.privacy.protection import NormVector, Protection, check_protection


@dataclass(frozen=True)
class DualProtection(Algorithm):
    """Step size, matrix and vector."""

    theorem: ClassVar[Literal[1, 2] | None]  # which of the paper's bounds τ

    lr: Rate  # γ
    matrix: MatrixStep = MatrixStep()
    protection: Protection = NormVector(0.1)

    def __post_init__(self) -> None:
        check_rate("lr", self.lr)
        check_matrix(self.matrix)
        check_protection(self.protection)

    def check_width(self, width: int) -> None:
        """Refuse a matrix that is too large."""
        self.matrix.check_width(width)

    def remarks(self, graph: Graph) -> list[str]:
        """The bound on τ."""
        return tau_bounds.remarks(self.protection, graph, self.theorem)

    def cautions(self, graph: Graph) -> list[str]:
        """A τ beyond its bound."""
        return tau_bounds.cautions(self.protection, graph, self.theorem)
