"""How strong a protection vector may be: the conditions on τ of the dual-protection paper's theorems.

D are the eigenvalues of the combination matrix A but the first, ‖D‖ the largest of their moduli.
"""

from __future__ import annotations

import math

from tacit.core.errors import Misuse
from tacit.graph import Graph
from tacit.privacy.protection import Protection


def bound_of_diffusion(graph: Graph) -> float:
    """|τ| < (1 − ‖D‖)/(√8 ‖D − I‖) for DSG-RMS (Theorem 1, eq. 13)."""
    distance = 1.0 - graph.smallest_eigenvalue
    return graph.spectral_gap / (math.sqrt(8.0) * distance) if distance > 0 else math.inf


def bound_of_exact_diffusion(graph: Graph) -> float:
    """|τ| ≤ (1 − ‖D‖) √σ_b / √(32 (1 − σ_b)), σ_b the smallest eigenvalue, for EDSG-RMS (Theorem 2, eq. 18)."""
    smallest = graph.smallest_eigenvalue
    if smallest >= 1.0:
        return math.inf
    return graph.spectral_gap * math.sqrt(max(smallest, 0.0) / (32.0 * (1.0 - smallest)))


BOUNDS = {1: bound_of_diffusion, 2: bound_of_exact_diffusion}


def remarks(protection: Protection, graph: Graph, theorem: int | None) -> list[str]:
    """That a protection vector is within its bound, or that there is none."""
    if theorem is None:
        return [
            f"protection of strength {abs(protection.tau) * protection.lipschitz:.3g}; no theorem bounds it here"
        ]
    strength, bound = _compared(protection, graph, theorem)
    if bound is None:
        return [f"the bound of Theorem {theorem} on tau was not computed: the graph is too large"]
    if strength >= bound:
        return []
    return [
        f"protection of strength {strength:.3g}, within the bound {bound:.3g} of Theorem {theorem} here"
    ]


def cautions(protection: Protection, graph: Graph, theorem: int | None) -> list[str]:
    """That a protection vector is beyond its bound."""
    if theorem is None:
        return []
    strength, bound = _compared(protection, graph, theorem)
    if bound is None or strength < bound:
        return []
    return [
        f"protection of strength {strength:.3g} is beyond the bound {bound:.3g} of Theorem {theorem} for this graph: "
        "convergence is not guaranteed; lower tau or use a denser graph"
    ]


def _compared(protection: Protection, graph: Graph, theorem: int) -> tuple[float, float | None]:
    """The strength of a vector and its bound, None where that is out of reach.

    The theorems are about the norm vector, whose Lipschitz constant is |τ|; other vectors are compared by theirs.
    """
    strength = abs(protection.tau) * protection.lipschitz
    try:
        return strength, BOUNDS[theorem](graph)
    except Misuse:
        return strength, None
