"""How strong a protection vector may be: the conditions on τ of the dual-protection paper's theorems.

D are the eigenvalues of the combination matrix A but the first, ‖D‖ the largest of their moduli.
"""

from __future__ import annotations

import math

from tacit.errors import Misuse
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


def remark(protection: Protection, graph: Graph, *, exact: bool) -> tuple[str, bool]:
    """How a protection vector compares with its bound on a graph, in words, and whether it is within.

    The theorems are about the norm vector, whose Lipschitz constant is |τ|; other vectors are compared by theirs.
    """
    strength = abs(protection.tau) * protection.lipschitz
    theorem = "Theorem 2" if exact else "Theorem 1"
    try:
        bound = bound_of_exact_diffusion(graph) if exact else bound_of_diffusion(graph)
    except Misuse:
        return f"the bound of {theorem} on tau was not computed: the graph is too large", True
    if strength < bound:
        return f"protection of strength {strength:.3g}, within the bound {bound:.3g} of {theorem} here", True
    return (
        f"protection of strength {strength:.3g} is beyond the bound {bound:.3g} of {theorem} for this graph: "
        "convergence is not guaranteed; lower tau or use a denser graph"
    ), False


def remarks(protection: Protection, graph: Graph, *, exact: bool) -> list[str]:
    """The remark, where there is nothing to be cautious about."""
    said, within = remark(protection, graph, exact=exact)
    return [said] if within else []


def cautions(protection: Protection, graph: Graph, *, exact: bool) -> list[str]:
    """The remark, where the bound is exceeded."""
    said, within = remark(protection, graph, exact=exact)
    return [] if within else [said]
