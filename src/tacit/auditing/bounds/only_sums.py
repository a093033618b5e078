"""Whether an adversary learns nothing about some clients but their sum.

Without the corrupt clients the graph falls into components. Masks hide each client's row; what is
left of the messages about a component H must be combinations of sums over H,

    Σᵢ gᵢᵗ,   Σᵢ ζᵢᵗ   over all i ∈ H, for gradients g and noise ζ

That is checked on the coefficients of everything the adversary sees.
"""

from __future__ import annotations

import numpy as np

from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.secret_rows import SecretRows
from tacit.auditing.symbolic.symbols import SymbolicRun

# Differences of coefficients, over the largest, that are rounding.
ROUNDING = 1e-9


def only_sum(
    run: SymbolicRun, adversary: Adversary, victim: int, view: SecretRows
) -> frozenset[int] | None:
    """The clients over which a sum is all that an adversary learns about a victim.

    Args:
        run: The run on symbols.
        adversary: Who learns.
        victim: The client that it is about.
        view: What the adversary sees.

    Returns:
        The victim's component of honest clients; None if more is learnt, or nothing is masked.
    """
    if not any(unknown.kind == "mask" for unknown in run.unknowns):
        return None
    component = adversary.honest_component(victim, run.transcript)
    matrix = view.coefficients
    size = np.abs(matrix).max(initial=0.0)
    columns: dict[tuple[str, int, str], list[int]] = {}
    for column in np.flatnonzero(matrix.any(axis=0)):
        unknown = run.unknowns[column]
        if unknown.client in component and not adversary.knows(unknown):
            columns.setdefault((unknown.kind, unknown.when, unknown.tag), []).append(int(column))
    for (kind, _, _), members in columns.items():
        if kind not in ("gradient", "noise") or len(members) != len(component):
            return None
        rows = matrix[:, members]
        if (np.abs(rows - rows[:, :1]) > ROUNDING * size).any():
            return None
    return component
