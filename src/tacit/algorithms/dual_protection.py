"""Dual protection, which DSG-RMS, EDSG-RMS and DSGT-RMS share.

A random matrix multiplies gradients (privacy/matrix_step.py) and a protection vector shifts
messages (privacy/protection.py). Theorems 1 and 2 of the dual-protection paper bound the strength τ
of the vector. There D are the eigenvalues of the combination matrix A except the first, and ‖D‖ is
the largest of their moduli.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.local_optimizer import check_weight_decay
from tacit.core.errors import Misuse
from tacit.core.schedules import Rate, check_rate
from tacit.graph import Graph
from tacit.privacy.matrix_step import MatrixStep, check_matrix
from tacit.privacy.protection import NormVector, Protection, check_protection


def diffusion_bound(graph: Graph) -> float:
    """|τ| < (1 − ‖D‖)/(√8 ‖D − I‖) for DSG-RMS (Theorem 1, eq. 13)."""
    distance = 1.0 - graph.smallest_eigenvalue
    return graph.spectral_gap / (math.sqrt(8.0) * distance) if distance > 0 else math.inf


def exact_diffusion_bound(graph: Graph) -> float:
    """|τ| ≤ (1 − ‖D‖) √σ_b / √(32 (1 − σ_b)) for EDSG-RMS (Theorem 2, eq. 18).

    σ_b is the smallest eigenvalue of A.
    """
    smallest = graph.smallest_eigenvalue
    if smallest >= 1.0:
        return math.inf
    return graph.spectral_gap * math.sqrt(max(smallest, 0.0) / (32.0 * (1.0 - smallest)))


BOUNDS = {1: diffusion_bound, 2: exact_diffusion_bound}


@dataclass(frozen=True)
class DualProtection(Algorithm):
    """Options of all three; `theorem` is the one that bounds τ, if any."""

    theorem: ClassVar[Literal[1, 2] | None]
    unsupported: ClassVar[Mapping[str, str]] = {
        "momentum": "the secret matrix of an iteration multiplies one gradient, not earlier ones",
        "optimizer": "a secret matrix multiplies gradients, and Adam is not linear in them",
    }

    lr: Rate
    matrix: MatrixStep = MatrixStep()
    protection: Protection = NormVector(0.1)
    weight_decay: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        check_rate("lr", self.lr)
        check_matrix(self.matrix)
        check_protection(self.protection)
        check_weight_decay(self.weight_decay)

    def check_width(self, width: int) -> None:
        self.matrix.check_width(width)

    @property
    def _strength(self) -> float:
        # The theorems use the norm vector, whose Lipschitz constant is |τ|. Other vectors are
        # compared by theirs.
        return abs(self.protection.tau) * self.protection.lipschitz

    def _bound(self, graph: Graph) -> float | None:
        """The bound on the strength; None without a theorem or if the graph is too large."""
        try:
            return BOUNDS[self.theorem](graph) if self.theorem else None
        except Misuse:
            return None

    def remarks(self, graph: Graph) -> list[str]:
        strength, bound = self._strength, self._bound(graph)
        if self.theorem is None:
            return [f"protection of strength {strength:.3g}; no theorem bounds it here"]
        if bound is None:
            return [f"Theorem {self.theorem} bounds tau, but the graph is too large to compute it"]
        if strength >= bound:
            return []
        return [
            f"protection of strength {strength:.3g}, within the bound {bound:.3g} of Theorem "
            f"{self.theorem} for this graph"
        ]

    def cautions(self, graph: Graph) -> list[str]:
        strength, bound = self._strength, self._bound(graph)
        if bound is None or strength < bound:
            return []
        return [
            f"protection of strength {strength:.3g} is beyond the bound {bound:.3g} of Theorem "
            f"{self.theorem} for this graph: convergence is not guaranteed; lower tau or use a "
            "denser graph"
        ]
