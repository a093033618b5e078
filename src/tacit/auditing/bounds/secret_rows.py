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
import torch
from torch import Tensor

from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.unmasked import without_masks
from tacit.auditing.symbolic.linear_knowledge import Combination, MessageRow
from tacit.auditing.symbolic.row_space import Matrix
from tacit.auditing.symbolic.symbolic_run import SymbolicRun
from tacit.core.noise import Noise
from tacit.record.transcript import Message
from tacit.record.unknowns import Unknown

LARGEST = 1e150  # coefficients above this are a recursion that diverges
ROUNDING = 64 * float(np.finfo(np.float64).eps)  # relative to the largest in a column
EQUAL = 1e-9  # differences of coefficients, over the largest, that are rounding


class NoBound(Exception):
    """Nothing is proved; the text says why.

    Attributes:
        combination: Messages that combine to gradients without noise, if that is the reason.
    """

    def __init__(self, why: str, combination: Combination | None = None) -> None:
        super().__init__(why)
        self.combination = combination


@dataclass(frozen=True, eq=False)
class SecretRows:
    """What an adversary sees, as rows of coefficients over secrets; all other unknowns are known.

    Attributes:
        run: The run on symbols.
        adversary: Who sees.
        victim: The client whose gradients are secret.
        gradients: The victim's gradients that occur in messages.
        noise: The noise that the adversary does not know.
        others: Further unknowns that occur in messages: gradients and results of other clients.
        signal: Coefficients of the gradients [m, T].
        added: Coefficients of the noise [m, K].
        coefficients: Those over all unknowns [m, U].
        rows: Where the rows are in the transcript. Masked messages are combined so that no mask
            remains; such a row is where the last of them is.
        masked: Whether there were masks that the adversary does not know.
    """

    run: SymbolicRun
    adversary: Adversary
    victim: int
    gradients: list[Unknown]
    noise: list[Unknown]
    others: list[Unknown]
    signal: Matrix
    added: Matrix
    coefficients: Matrix
    rows: list[MessageRow]
    masked: bool = False

    @classmethod
    def of(
        cls,
        run: SymbolicRun,
        adversary: Adversary,
        victim: int,
        component: frozenset[int] | None = None,
    ) -> SecretRows:
        """The view of an adversary on a run.

        Args:
            run: The run on symbols.
            adversary: Who sees.
            victim: The client whose gradients are secret.
            component: Clients over which sums take the place of masked totals; by default totals
                are seen as they are sent.

        Raises:
            NoBound: Coefficients are too large, or not finite.
        """
        hidden = np.array([not adversary.knows(unknown) for unknown in run.unknowns], dtype=bool)
        is_mask = np.array([unknown.kind == "mask" for unknown in run.unknowns], dtype=bool)
        seen, parts = [], [np.zeros((0, len(hidden)))]
        for index, rows in adversary.view(run.transcript):
            message = run.transcript.messages[index]
            if index in run.plain_messages or (component is not None and _is_sent_up(message)):
                continue
            if component is not None and message.modulus is not None:
                parts.append(run.wide(component_sum(run, index, component)))
            else:
                parts.append(run.wide(message.rows[rows]))
            seen += [MessageRow(index, row) for row in rows.tolist()[: len(parts[-1])]]
        matrix = np.concatenate(parts)
        if not np.abs(matrix).max(initial=0.0) < LARGEST:
            raise NoBound("coefficients of messages grow out of range: no bound is proved")
        size = np.abs(matrix)
        matrix[size <= ROUNDING * size.max(axis=0, initial=0.0)] = 0.0
        masks = matrix[:, hidden & is_mask]
        if masked := bool(masks.any()):
            matrix[:, hidden & is_mask] = 0.0
            matrix, made_of = without_masks(matrix, masks)
            # A combination is seen when its last message is.
            seen = [max(seen[row] for row in rows) for rows in made_of]
        present = hidden & matrix.any(axis=0)
        columns: dict[str, list[int]] = {"gradients": [], "noise": [], "others": []}
        for column in np.flatnonzero(present):
            unknown = run.unknowns[column]
            of_victim = unknown.kind == "gradient" and unknown.client == victim
            kind = "noise" if unknown.kind == "noise" else "gradients" if of_victim else "others"
            columns[kind].append(int(column))
        names = {kind: [run.unknowns[k] for k in some] for kind, some in columns.items()}
        signal, added = matrix[:, columns["gradients"]], matrix[:, columns["noise"]]
        used = np.flatnonzero(signal.any(axis=1) | added.any(axis=1))
        return cls(
            run,
            adversary,
            victim,
            **names,
            signal=signal[used],
            added=added[used],
            coefficients=matrix[used],
            rows=[seen[row] for row in used],
            masked=masked,
        )

    @property
    def laws(self) -> list[Noise]:
        """The distribution of each noise."""
        return [self.run.laws[unknown] for unknown in self.noise]

    @property
    def deviations(self) -> Matrix:
        """The standard deviation of each noise [K]."""
        return np.sqrt([law.variance for law in self.laws])

    def before(self, messages: int) -> npt.NDArray[np.bool_]:
        """Which rows are of the first `messages` messages."""
        return np.array([row.message < messages for row in self.rows], dtype=bool)

    def combined(self, coefficients: Matrix) -> list[tuple[Unknown, float]]:
        """The gradients in a combination [m] of the rows, with their coefficients."""
        total = coefficients @ self.coefficients
        pairs = zip(self.run.unknowns, total.tolist(), strict=True)
        return [(unknown, x) for unknown, x in pairs if unknown.kind == "gradient"]

    @property
    def known_noise(self) -> list[Unknown]:
        """Noise in the rows that the adversary knows."""
        present = (self.run.unknowns[k] for k in np.flatnonzero(self.coefficients.any(axis=0)))
        return [u for u in present if u.kind == "noise" and self.adversary.knows(u)]

    def only_sum(self) -> frozenset[int] | None:
        """The clients over which a sum is all that is learnt about the victim, if that is so.

        Without the corrupt clients the graph falls into components. Masks hide each client's row;
        what is left of the messages about the victim's component H must be combinations of sums

            Σᵢ gᵢᵗ,   Σᵢ ζᵢᵗ   over all i ∈ H, for gradients g and noise ζ

        Returns:
            The victim's component of honest clients; None if more is learnt, or nothing is masked.
        """
        run, matrix = self.run, self.coefficients
        if not any(unknown.kind == "mask" for unknown in run.unknowns):
            return None
        component = self.adversary.honest_component(self.victim, run.transcript)
        size = np.abs(matrix).max(initial=0.0)
        columns: dict[tuple[str, int, str], list[int]] = {}
        for column in np.flatnonzero(matrix.any(axis=0)):
            unknown = run.unknowns[column]
            if unknown.client in component and not self.adversary.knows(unknown):
                key = unknown.kind, unknown.when, unknown.tag
                columns.setdefault(key, []).append(int(column))
        for (kind, _, _), members in columns.items():
            if kind not in ("gradient", "noise") or len(members) != len(component):
                return None
            rows = matrix[:, members]
            if (np.abs(rows - rows[:, :1]) > EQUAL * size).any():
                return None
        return component


def _is_sent_up(message: Message) -> bool:
    """Whether these are masked sums on their way up the tree."""
    return message.modulus is not None and message.tag.endswith("/up")


def component_sum(run: SymbolicRun, index: int, component: frozenset[int]) -> Tensor:
    """What clients of a component contribute to a total, message number `index`: [1, U'].

    A client's own masked row is what it sends up, less what its children send up; the root's is
    the total, less what its children send up. Masks between clients of the component cancel.
    """
    up, down = run.transcript.messages[index - 1 : index + 1]
    assert up.target is not None
    ends = list(zip(up.source.tolist(), up.target.tolist(), strict=True))
    signs = [(child in component) - (parent in component) for child, parent in ends]
    total = torch.tensor(signs, dtype=up.rows.dtype) @ up.rows
    root = {parent for _, parent in ends} - {child for child, _ in ends}
    return (total + down.rows[0] if root <= component else total)[None]


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
