"""Everything that is known about chosen unknowns alone, such as a victim's gradients.

The messages span a space of combinations of the hidden unknowns. Those that contain only the chosen
unknowns form a subspace; its dimension is how much is known about them, whatever the questions.
A basis of short combinations makes it readable: single unknowns first, then pairs, then the rest in
echelon form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np
import numpy.typing as npt

from tacit.auditing.symbolic.linear_knowledge import EXACT, LinearKnowledge
from tacit.auditing.symbolic.row_space import ZERO, Matrix, reduced_echelon
from tacit.record.unknowns import Unknown

MOST_PAIRS = 20_000
MOST_GROUPS = 300  # of each size that are examined, in order of the clients' numbers


@dataclass(frozen=True, eq=False)
class KnownSubspace:
    """Independent combinations of the chosen unknowns that an adversary can compute."""

    unknowns: list[Unknown]
    basis: Matrix  # [dimension, unknowns], short combinations first

    @property
    def dimension(self) -> int:
        return len(self.basis)

    def terms(self, index: int) -> tuple[tuple[Unknown, ...], tuple[float, ...]]:
        """The unknowns of one combination, latest first, and their coefficients."""
        row = self.basis[index]
        used = np.flatnonzero(row)[::-1]
        return tuple(self.unknowns[k] for k in used), tuple(float(row[k]) for k in used)


def known_subspace(knowledge: LinearKnowledge, unknowns: list[Unknown]) -> KnownSubspace:
    """What is known about `unknowns` alone."""
    columns = {unknown: k for k, unknown in enumerate(knowledge.hidden)}
    chosen = [columns[unknown] for unknown in unknowns if unknown in columns]
    kept = [unknown for unknown in unknowns if unknown in columns]
    if not chosen:
        return KnownSubspace([], np.zeros((0, 0)))
    inside, outside = knowledge.basis[:, chosen], np.delete(knowledge.basis, chosen, axis=1)
    return KnownSubspace(kept, short_basis(_contained(inside, outside)))


def known_group_sums(
    knowledge: LinearKnowledge,
    gradients: dict[int, list[Unknown]],
    victim: int,
) -> list[tuple[tuple[Unknown, ...], tuple[float, ...]]]:
    """Combinations of the gradients of the victim and one or two other honest clients.

    Only those that follow from no smaller group: one for each group, the shortest with the victim.

    Args:
        knowledge: What the adversary knows.
        gradients: The gradients of each honest client that may be in a group.
        victim: The client in every group.
    """
    others = [client for client in sorted(gradients) if client != victim]
    alone = known_subspace(knowledge, gradients[victim])
    dimension = _known_dimensions(knowledge, gradients)
    known: dict[tuple[int, ...], KnownSubspace] = {(victim,): alone}
    sums = []
    for size in (1, 2):
        chosen = list(islice(combinations(others, size), MOST_GROUPS))
        groups = [(victim, *others) for others in chosen]
        # With the victim more is known than of the victim alone and of the others alone.
        more = dimension(groups) > dimension(chosen) + alone.dimension
        for group in (group for group, new in zip(groups, more, strict=True) if new):
            of_group = [u for client in group for u in gradients[client]]
            known[group] = known_subspace(knowledge, of_group)
            smaller = [known[part] for part in combinations(group, size) if part in known]
            if (row := _new_row(known[group], smaller, victim)) is not None:
                sums.append(known[group].terms(row))
    return sums


def _known_dimensions(
    knowledge: LinearKnowledge, gradients: dict[int, list[Unknown]]
) -> Callable[[Sequence[tuple[int, ...]]], npt.NDArray[np.int64]]:
    """Counts independent combinations of the gradients of each group alone that are known.

    With orthonormal rows Q, the combinations without any part outside columns S belong to the
    eigenvalue one of Q_Sᵀ Q_S.
    """
    position = {unknown: k for k, unknown in enumerate(knowledge.hidden)}
    columns: dict[int, list[int]] = {}
    used: list[int] = []
    for client, unknowns in gradients.items():
        hidden = [position[unknown] for unknown in unknowns if unknown in position]
        columns[client] = list(range(len(used), len(used) + len(hidden)))
        used += hidden
    products = knowledge.basis[:, used].T @ knowledge.basis[:, used]

    def dimensions(groups: Sequence[tuple[int, ...]]) -> npt.NDArray[np.int64]:
        counts = np.zeros(len(groups), dtype=np.int64)
        chosen = [[k for client in group for k in columns[client]] for group in groups]
        for width in {len(some) for some in chosen} - {0}:
            of = [index for index, some in enumerate(chosen) if len(some) == width]
            picked = np.array([chosen[index] for index in of])
            values = np.linalg.eigvalsh(products[picked[:, :, None], picked[:, None, :]])
            counts[of] = (values > 1 - 1e-6).sum(1)
        return counts

    return dimensions


def _new_row(known: KnownSubspace, smaller: list[KnownSubspace], victim: int) -> int | None:
    """The first row with a gradient of the victim that does not follow from smaller groups."""
    columns = {unknown: k for k, unknown in enumerate(known.unknowns)}
    old = np.zeros((sum(part.dimension for part in smaller), len(columns)))
    row = 0
    for part in smaller:
        old[row : row + part.dimension, [columns[u] for u in part.unknowns]] = part.basis
        row += part.dimension
    rank = int(np.linalg.matrix_rank(old, tol=ZERO)) if len(old) else 0
    if known.dimension == rank:
        return None
    for index, combination in enumerate(known.basis):
        clients = {known.unknowns[k].client for k in np.flatnonzero(combination)}
        if victim not in clients or len(clients) == 1:
            continue
        if np.linalg.matrix_rank(np.vstack((old, combination)), tol=ZERO) > rank:
            return index
    return None


def _contained(inside: Matrix, outside: Matrix) -> Matrix:
    """Orthonormal rows [d, chosen] that span the combinations without any part outside.

    The rows of Q = [inside outside] are orthonormal, so a combination a of them has no part outside
    if and only if ‖aᵀ inside‖ = ‖a‖: a left singular vector with singular value one.
    """
    left, sizes, right = np.linalg.svd(inside, full_matrices=False)
    near = sizes > 1 - 1e-6
    missing = np.linalg.norm(left[:, near].T @ outside, axis=1)
    contained: Matrix = right[near][missing <= EXACT]
    return contained


def short_basis(space: Matrix) -> Matrix:
    """A basis of the row space of `space` [d, n] whose combinations are short, shortest first."""
    dimension, width = space.shape
    basis: list[Matrix] = []
    taken = np.zeros((0, width))

    def add(row: Matrix) -> None:
        nonlocal taken
        rest = row - (row @ taken.T) @ taken
        rest -= (rest @ taken.T) @ taken
        if (size := np.linalg.norm(rest)) > ZERO * np.linalg.norm(row):
            taken = np.vstack((taken, rest / size))
            basis.append(_scaled(row))

    # Singles: unit vectors that lie in the space.
    lengths = np.linalg.norm(space, axis=0)
    for k in np.flatnonzero(lengths > 1 - 1e-9):
        add(np.eye(width)[k])
    # Pairs: the space restricted to two columns has a direction with nothing elsewhere.
    pairs = list(combinations(np.flatnonzero(lengths > ZERO), 2))
    if len(pairs) <= MOST_PAIRS:
        for i, j in sorted(pairs, key=lambda pair: pair[1] - pair[0]):
            if len(basis) == dimension:
                break
            _, sizes, right = np.linalg.svd(space[:, [i, j]], full_matrices=False)
            for size, direction in zip(sizes, right, strict=True):
                if size > 1 - 1e-9:
                    row = np.zeros(width)
                    row[[i, j]] = direction
                    add(row)
    for row in sorted(reduced_echelon(space), key=np.count_nonzero):
        if len(basis) == dimension:
            break
        add(row)
    return np.array(sorted(basis, key=np.count_nonzero)).reshape(len(basis), width)


def _scaled(row: Matrix) -> Matrix:
    """The row with its last coefficient one, and rounding errors removed."""
    last = row[np.flatnonzero(np.abs(row) > ZERO * np.abs(row).max())[-1]]
    scaled = row / last
    rounded = np.round(scaled)
    cleaned: Matrix = np.where(np.abs(scaled - rounded) < 1e-9, rounded, scaled)
    return cleaned
