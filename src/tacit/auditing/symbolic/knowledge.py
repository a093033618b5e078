"""What an adversary knows: linear algebra over the messages it saw.

A run on symbols gives each message as coefficients over the unknowns. Those that the adversary has by itself are taken
away; the rest are hidden. A quantity c (a gradient, a difference, a sum, a model) is

    exact    if c is a combination of messages: c = aᵀA
    noisy    if some combination is c plus noise only; then the best linear unbiased estimate is the one with the
             least variance among them
    hidden   if every combination that contains it also contains other secrets

For the second, A = L Q with orthonormal rows Q = [S N] over secrets and noise, the noise of deviations D. Of all
combinations with Sᵀa = c_S the best has the least ‖D(Nᵀa − c_N)‖². With S = UΣVᵀ it is a = UΣ⁻¹Vᵀc_S + Z b, the columns
of Z being orthogonal to those of U, and b the solution of a least-squares problem. Where all noise is of one deviation,
no problem is left: as S Sᵀ + N Nᵀ = I, the singular vectors of S also diagonalize the noise, and b = ZᵀN c_N.

Tolerances: a coefficient below 10⁻⁷ of the largest, or a message that adds less than 10⁻⁹ of its size to earlier ones,
is below the rounding of what is sent in float32 and counts as nothing: a step size of 10⁻⁷ hides gradients in models.

Linear knowledge is a lower bound on knowledge: what is exact here is known for certain; what is hidden here is hidden
from linear combinations. Non-linear steps count as unknowns of their own, about which nothing is assumed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import linalg
from torch import Tensor

from tacit.auditing.adversary import Adversary, view
from tacit.auditing.symbolic.echelon import Echelon, Matrix
from tacit.auditing.symbolic.symbols import SymbolicRun
from tacit.core.errors import Misuse
from tacit.record.unknowns import Unknown

Status = Literal["exact", "noisy", "hidden"]
Flags = npt.NDArray[np.bool_]
EXACT = 1e-7  # ‖c − aᵀA‖ / ‖c‖ below which c is a combination of messages
VISIBLE = 1e-6  # singular values of S below this are secrets that are not seen
CANDIDATE = 1e-12  # of ‖c‖², what may be missing in a first look
NEGLIGIBLE = 1e-12  # coefficients left out of a combination, relative to its largest
BLOCK = 256  # rows taken in at a time


class Seen(NamedTuple):
    """One row of one message, by their places in the transcript."""

    message: int
    row: int


@dataclass(frozen=True, eq=False)
class Combination:
    """Σ coefficients · messages − Σ coefficients · own: the same for every coordinate."""

    messages: tuple[tuple[Seen, float], ...]
    own: tuple[tuple[Unknown, float], ...]  # what the adversary has itself

    @property
    def gain(self) -> float:
        """The sum of the sizes of the coefficients: what the rounding of messages is multiplied with, at most."""
        return sum(abs(coefficient) for _, coefficient in self.messages)


@dataclass(frozen=True, eq=False)
class Answer:
    """What is known of one quantity."""

    status: Status
    variance: (
        float | None
    )  # of the noise in the best estimate, per coordinate; 0 if exact, None if hidden
    combination: Combination | None  # the estimate; None if hidden
    noise: tuple[tuple[Unknown, float], ...] = ()  # what is left in it


class Knowledge:
    """One adversary's view of one run, factorized once; every question after that is a product."""

    def __init__(self, run: SymbolicRun, adversary: Adversary) -> None:
        adversary.refuse(run.clients, run.transcript.edges)
        self.run = run
        self.adversary = adversary
        hidden = np.array([not adversary.knows(unknown) for unknown in run.unknowns], dtype=bool)
        self._columns = np.flatnonzero(hidden)
        self._own = np.flatnonzero(~hidden)
        kinds = [run.unknowns[column].kind for column in self._columns]
        self._is_noise = np.array([kind == "noise" for kind in kinds], dtype=bool)
        self.seen: list[Seen] = []
        self._echelon = Echelon(len(self._columns))
        waiting: list[Matrix] = []
        for message, rows in view(run.transcript, adversary):
            said = run.transcript.messages[message].rows
            self.seen += [Seen(message, row) for row in rows.tolist()]
            waiting.append(said[rows].numpy()[:, self._columns[self._columns < said.shape[1]]])
            if sum(map(len, waiting)) >= BLOCK:
                self._take(waiting)
        self._take(waiting)

    @property
    def hidden(self) -> list[Unknown]:
        """The unknowns that the adversary does not have by itself: the columns of `basis`."""
        return [self.run.unknowns[column] for column in self._columns]

    @property
    def basis(self) -> Matrix:
        """Orthonormal rows [rank, hidden] that span what the messages say."""
        return self._echelon.basis

    @property
    def rank(self) -> int:
        """How many independent things the messages say."""
        return self._echelon.rank

    def vector(self, *terms: tuple[Unknown, float]) -> Matrix:
        """A combination of unknowns as coefficients over all of them [U]."""
        vector = np.zeros(len(self.run.unknowns))
        for unknown, coefficient in terms:
            if unknown not in self.run.places:
                raise Misuse(
                    f"{unknown} does not occur in the run.", "Ask about what happened in it."
                )
            vector[self.run.places[unknown]] += coefficient
        return vector

    def widened(self, row: Tensor) -> Matrix:
        """Coefficients over the first unknowns of the run, such as a model's, over all of them [U]."""
        vector = np.zeros(len(self.run.unknowns))
        vector[: len(row)] = row.numpy()
        return vector

    def hidden_part(self, vectors: Matrix) -> Matrix:
        """The coefficients [c, hidden] of vectors [c, U] over what the adversary does not have by itself."""
        return vectors[:, self._columns]

    def exact(self, vectors: Matrix) -> Flags:
        """Which of the vectors [c, U] the adversary can compute."""
        hidden = self.hidden_part(vectors)
        size = np.square(hidden).sum(axis=1)
        filled = np.flatnonzero(hidden.any(axis=0))  # most questions are about a few unknowns
        inside = hidden[:, filled] @ self.basis[:, filled].T
        exact: Flags = size - np.square(inside).sum(axis=1) <= CANDIDATE * size
        (likely,) = np.nonzero(
            exact
        )  # only these are worth the long product, which does not cancel
        missing = np.linalg.norm(hidden[likely] - inside[likely] @ self.basis, axis=1)
        exact[likely] = missing <= EXACT * np.sqrt(size[likely])
        return exact

    def variances(self, vectors: Matrix) -> Matrix:
        """The variance [c] of the best estimate of each: 0 where it is exact, infinite where it is hidden."""
        exact = self.exact(vectors)
        variances = np.where(exact, 0.0, np.inf)
        if (
            exact.all() or not self._is_noise.any()
        ):  # without noise there is nothing between exact and hidden
            return variances
        rest = self.hidden_part(vectors[~exact])
        inside, visible = self._estimate(rest)
        if self._alike and not rest[:, self._is_noise].any():
            # ‖Nᵀa‖² = ‖a‖² − ‖Sᵀa‖², as the rows of Q are orthonormal: no long product is needed.
            found = np.square(inside).sum(axis=1) - np.square(rest).sum(axis=1)
            found = np.maximum(found, 0.0) * self._deviations[0] ** 2
        else:
            found = np.square(self._error(inside, rest)).sum(axis=1)
        variances[~exact] = np.where(visible, found, np.inf)
        return variances

    def ask(self, vector: Matrix) -> Answer:
        """What is known of one vector [U], and how."""
        hidden = self.hidden_part(vector[None])
        if self.exact(vector[None])[0]:
            return Answer("exact", 0.0, self._combination(self.basis @ hidden[0], vector))
        if not self._is_noise.any():
            return Answer("hidden", None, None)
        inside, visible = self._estimate(hidden)
        if not visible[0]:
            return Answer("hidden", None, None)
        error = self._error(inside, hidden)[0]
        left = inside[0] @ self._noise - hidden[0, self._is_noise]
        names = [self.run.unknowns[column] for column in self._columns[self._is_noise]]
        rest = tuple((u, float(x)) for u, x in zip(names, left, strict=True) if abs(x) > EXACT)
        return Answer(
            "noisy", float(np.square(error).sum()), self._combination(inside[0], vector), rest
        )

    @cached_property
    def _secrets(self) -> Matrix:
        """S [rank, secrets]."""
        return self.basis[:, ~self._is_noise]

    @cached_property
    def _noise(self) -> Matrix:
        """N [rank, noise]."""
        return self.basis[:, self._is_noise]

    @property
    def _alike(self) -> bool:
        """Whether all hidden noise is of one deviation."""
        return bool(np.ptp(self._deviations) <= EXACT * self._deviations.max())

    @cached_property
    def _deviations(self) -> Matrix:
        """Of the hidden noise."""
        names = [self.run.unknowns[column] for column in self._columns[self._is_noise]]
        deviations: Matrix = np.sqrt(np.array([self.run.laws[name].variance for name in names]))
        return deviations

    @cached_property
    def _decomposition(self) -> tuple[Matrix, Matrix, Matrix, Matrix]:
        """U [rank, k], σ [k], V [k, secrets] of S for the σ that are not zero, and Z [rank, rank − k]."""
        secrets = self._secrets
        squares, vectors = linalg.eigh(secrets @ secrets.T, check_finite=False)
        kept = squares > VISIBLE**2
        left, sigma = vectors[:, kept], np.sqrt(np.minimum(squares[kept], 1.0))
        return left, sigma, (left.T @ secrets) / sigma[:, None], vectors[:, ~kept]

    def _estimate(self, hidden: Matrix) -> tuple[Matrix, Flags]:
        """The best estimates as combinations [c, rank] of the basis, and whether all secrets in them are visible."""
        left, sigma, right, free = self._decomposition
        secrets = hidden[:, ~self._is_noise]
        along = secrets @ right.T
        missing = np.linalg.norm(secrets - along @ right, axis=1)
        visible: Flags = missing <= EXACT * np.linalg.norm(secrets, axis=1)
        inside = (along / sigma) @ left.T
        if self._alike:
            if (noise := hidden[:, self._is_noise]).any():
                inside += (noise @ self._noise.T) @ free @ free.T
        elif free.shape[1]:
            moves = (free.T @ self._noise) * self._deviations
            best, *_ = linalg.lstsq(moves.T, -self._error(inside, hidden).T, lapack_driver="gelsy")
            inside += (free @ best).T
        return inside, visible

    def _error(self, inside: Matrix, hidden: Matrix) -> Matrix:
        """The noise [c, noise] that an estimate adds to what was asked, each term by its deviation."""
        error: Matrix = inside @ self._noise - hidden[:, self._is_noise]
        return error * self._deviations

    def _combination(self, inside: Matrix, target: Matrix) -> Combination:
        """The combination that gives insideᵀQ over the hidden unknowns, and over its own ones the target's share."""
        coefficients = self._echelon.combination(inside[None])[0]
        rows = [self.seen[pivot] for pivot in self._echelon.pivots]
        negligible = NEGLIGIBLE * max(1.0, float(np.abs(coefficients).max(initial=0.0)))
        used = [
            (seen, float(a))
            for seen, a in zip(rows, coefficients, strict=True)
            if abs(a) > negligible
        ]
        total = -target
        for seen, a in used:
            row = self.run.transcript.messages[seen.message].rows[seen.row].numpy()
            total[: len(row)] += a * row
        own = [
            (self.run.unknowns[column], float(total[column]))
            for column in self._own
            if abs(total[column]) > NEGLIGIBLE
        ]
        return Combination(tuple(sorted(used)), tuple(own))

    def _take(self, waiting: list[Matrix]) -> None:
        if not waiting:
            return
        width = max(rows.shape[1] for rows in waiting)
        padded = [np.pad(rows, ((0, 0), (0, width - rows.shape[1]))) for rows in waiting]
        self._echelon.add(np.concatenate(padded))
        waiting.clear()
