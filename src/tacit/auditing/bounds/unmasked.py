"""What an adversary can compute from masked messages: combinations in which unknown masks cancel.

A mask is uniform, independent of everything else and used once. Given all combinations without
masks, the remaining messages are uniform whatever the data are, so they tell nothing.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg
from scipy.sparse import csgraph, csr_array

from tacit.auditing.symbolic.row_space import Matrix, reduced_echelon

# Coefficients below this are rounding: those of masks are ±1.
ROUNDING = 1e-9


def without_masks(matrix: Matrix, masks: Matrix) -> tuple[Matrix, list[list[int]]]:
    """Rows that span all combinations of rows without masks.

    Args:
        matrix: Messages as coefficients over other unknowns [m, U].
        masks: Their coefficients over the masks that the adversary does not know [m, M].

    Returns:
        The combinations [k, U], and the messages that each is made of. Messages without masks come
        first, as they are.
    """
    plain = np.flatnonzero(~masks.any(axis=1))
    rows, made_of = [matrix[plain]], [[int(row)] for row in plain]
    for group in _groups(masks):
        used = masks[group]
        free = linalg.null_space(used[:, used.any(axis=0)].T, rcond=ROUNDING)
        # Echelon form: combinations of few messages, with simple coefficients.
        combined = reduced_echelon(free.T) @ matrix[group]
        combined[np.abs(combined) < ROUNDING * np.abs(combined).max(initial=1.0)] = 0.0
        rows.append(combined)
        made_of += [group.tolist()] * len(combined)
    return np.concatenate(rows), made_of


def _groups(masks: Matrix) -> list[np.ndarray]:
    """Rows that share masks, directly or through others: iterations do not, for one."""
    used = np.flatnonzero(masks.any(axis=1))
    if not len(used):
        return []
    shares = csr_array(masks[used] != 0).astype(np.float64)
    count, label = csgraph.connected_components(shares @ shares.T, directed=False)
    return [used[label == group] for group in range(count)]
