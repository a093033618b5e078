"""Which rows of a client are held out for testing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.randomness import derive_key


def held_out(labels: NDArray[Any], share: float, seed: int, client: str) -> NDArray[np.bool_]:
    """Choose a share of a client's rows at random, the same share of each class.

    The choice depends on the client's name and its labels only, so that a simulation and the
    client itself hold out the same rows.

    Args:
        labels: The class of each row [n]; numbers that are no classes do not matter.
        share: Which part of the rows is held out, between 0 and 1.
        seed: Seed of the choice.
        client: The client's name.

    Returns:
        Whether each row is held out [n]; at least one is, and at least one is not, where there are
        two rows or more.
    """
    rng = np.random.default_rng(derive_key(seed, "hold-out", client))
    n = len(labels)
    if labels.dtype.kind == "f":
        labels = np.zeros(n, dtype=np.int64)
    total = min(max(round(share * n), 1), n - 1)
    classes, counts = np.unique(labels, return_counts=True)
    wanted = share * counts
    taken = np.floor(wanted).astype(int)
    # What rounding leaves goes to the classes that lost most by it.
    for at in np.argsort(taken - wanted, kind="stable"):
        if taken.sum() < total and taken[at] < counts[at]:
            taken[at] += 1
    chosen = np.zeros(n, dtype=bool)
    for kind, count in zip(classes, taken, strict=True):
        rows = np.flatnonzero(labels == kind)
        chosen[rng.permutation(rows)[:count]] = True
    return chosen
