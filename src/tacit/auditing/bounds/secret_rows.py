"""The messages of a run over what a bound treats as secret: a victim's gradients and the noise.

Rounding in the run on symbols acts on each column by itself, so a coefficient counts as zero only
if it is tiny beside the others in its column. Scaled by the sensitivity of gradients and by the
standard deviation of noise, and with each row divided by its noise, the coefficients of gradients
are in units of ε: comparing them is independent of the units of step sizes, data and noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.unmasked import without_masks
from tacit.auditing.symbolic.linear_knowledge import MessageRow
from tacit.auditing.symbolic.row_space import Matrix
from tacit.auditing.symbolic.symbols import SymbolicRun
from tacit.record.unknowns import Unknown

LARGEST = 1e150  # coefficients above this are a recursion that diverges
ROUNDING = 64 * float(np.finfo(np.float64).eps)  # relative to the largest in a column


class OutOfRange(Exception):
    """Coefficients are too large, or not finite."""


@dataclass(frozen=True, eq=False)
class SecretRows:
    """What an adversary sees, as rows of coefficients over secrets; all other unknowns are known.

    Attributes:
        gradients: The victim's gradients that occur in messages.
        noise: The noise that the adversary does not know.
        others: Further unknowns that occur in messages: gradients and results of other clients.
        signal: Coefficients of the gradients [m, T].
        added: Coefficients of the noise [m, K].
        rows: Where the rows are in the transcript. Masked messages are combined so that no mask
            remains; such a row is where the last of them is.
    """

    run: SymbolicRun
    gradients: list[Unknown]
    noise: list[Unknown]
    others: list[Unknown]
    signal: Matrix
    added: Matrix
    rows: list[MessageRow]
    unmasked: Matrix | None = None  # all coefficients of the rows [m, U], if there were masks

    @classmethod
    def of(cls, run: SymbolicRun, adversary: Adversary, victim: int) -> SecretRows:
        """The view of an adversary on a run."""
        hidden = np.array([not adversary.knows(unknown) for unknown in run.unknowns], dtype=bool)
        is_mask = np.array([unknown.kind == "mask" for unknown in run.unknowns], dtype=bool)
        unmasked, seen, parts = None, [], []
        for message, rows in adversary.view(run.transcript):
            if message not in run.plain_messages:
                seen += [MessageRow(message, row) for row in rows.tolist()]
                sent = run.transcript.messages[message].rows[rows].numpy()
                parts.append(np.pad(sent, ((0, 0), (0, len(hidden) - sent.shape[1]))))
        matrix = np.concatenate(parts) if parts else np.zeros((0, len(hidden)))
        if not np.abs(matrix).max(initial=0.0) < LARGEST:
            raise OutOfRange
        size = np.abs(matrix)
        matrix[size <= ROUNDING * size.max(axis=0, initial=0.0)] = 0.0
        if (masks := matrix[:, hidden & is_mask]).any():
            matrix[:, hidden & is_mask] = 0.0
            matrix, made_of = without_masks(matrix, masks)
            unmasked = matrix
            # A combination is seen when its last message is.
            seen = [max(seen[row] for row in rows) for rows in made_of]
        present = hidden & matrix.any(axis=0)
        columns: dict[str, list[int]] = {"gradients": [], "noise": [], "others": []}
        for column in np.flatnonzero(present):
            unknown = run.unknowns[column]
            own = unknown.kind == "gradient" and unknown.client == victim
            kind = "noise" if unknown.kind == "noise" else "gradients" if own else "others"
            columns[kind].append(int(column))
        names = {kind: [run.unknowns[k] for k in some] for kind, some in columns.items()}
        signal, added = matrix[:, columns["gradients"]], matrix[:, columns["noise"]]
        used = np.flatnonzero(signal.any(axis=1) | added.any(axis=1))
        kept = [seen[row] for row in used]
        if unmasked is not None:
            unmasked = unmasked[used]
        return cls(
            run, **names, signal=signal[used], added=added[used], rows=kept, unmasked=unmasked
        )

    def before(self, messages: int) -> npt.NDArray[np.bool_]:
        """Which rows are of the first `messages` messages."""
        return np.array([row.message < messages for row in self.rows], dtype=bool)

    @property
    def coefficients(self) -> Matrix:
        """The rows as coefficients over all unknowns, [m, U]."""
        if self.unmasked is not None:
            return self.unmasked
        matrix = np.zeros((len(self.rows), len(self.run.unknowns)))
        for k, (message, row) in enumerate(self.rows):
            sent = self.run.transcript.messages[message].rows[row].numpy()
            matrix[k, : len(sent)] = sent
        return matrix

    def combined(self, coefficients: Matrix) -> list[tuple[Unknown, float]]:
        """The gradients in a combination [m] of the rows, with their coefficients."""
        total = coefficients @ self.coefficients
        pairs = zip(self.run.unknowns, total.tolist(), strict=True)
        return [(unknown, x) for unknown, x in pairs if unknown.kind == "gradient"]


def normalized(signal: Matrix, noise: Matrix) -> tuple[Matrix, Matrix]:
    """The same rows, each divided by the size of its noise, or of its signal if it has none."""
    sizes = row_sizes(signal, noise)[:, None]
    return signal / sizes, noise / sizes


def row_sizes(signal: Matrix, noise: Matrix) -> Matrix:
    """What `normalized` divides each row by, [m]."""
    sizes = _lengths(noise)
    sizes = np.where(sizes > 0, sizes, _lengths(signal))
    return np.where(sizes > 0, sizes, 1.0)


def _lengths(rows: Matrix) -> Matrix:
    """Norms of rows, also of such whose squares are out of range."""
    largest = np.abs(rows).max(axis=1, initial=0.0)
    unit = rows / np.where(largest > 0, largest, 1.0)[:, None]
    lengths: Matrix = largest * np.linalg.norm(unit, axis=1)
    return lengths
