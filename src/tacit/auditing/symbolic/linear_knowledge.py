"""What an adversary knows from messages by linear algebra alone.

A run on symbols gives each message as coefficients over the unknowns. The adversary's own unknowns
are subtracted; the others are hidden. A quantity c (a gradient, a difference, a sum, a model) is

    exact    if c is a combination of messages: c = aᵀA
    noisy    if some combination equals c plus noise; the estimate is the one with least variance
    hidden   if every combination that contains c also contains other secrets

A = L Q with orthonormal rows Q = [S N] over secrets and noise; D are the standard deviations of the
noise. Among all combinations with Sᵀa = c_S the best one minimises ‖D(Nᵀa − c_N)‖². With S = UΣVᵀ
it is a = UΣ⁻¹Vᵀc_S + Z b, where the columns of Z are orthogonal to those of U and b solves a
least-squares problem. If all noise has one standard deviation, S Sᵀ + N Nᵀ = I makes it explicit:
b = ZᵀN c_N.

A coefficient below 10⁻⁷ of the largest, or a message that adds less than 10⁻⁹ of its size to
earlier ones, is below the rounding of float32 and counts as zero. A step size of 10⁻⁷ therefore
hides gradients in models.

Linear knowledge is a lower bound on knowledge: exact quantities are known for certain, hidden ones
are hidden from linear combinations. Results of non-linear steps are unknowns of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import linalg
from torch import Tensor

from tacit.auditing.adversary import Adversary
from tacit.auditing.symbolic.row_space import Matrix, RowSpace
from tacit.auditing.symbolic.symbolic_run import SymbolicRun
from tacit.core.errors import Misuse
from tacit.record.unknowns import Unknown

Status = Literal["exact", "noisy", "hidden"]
Flags = npt.NDArray[np.bool_]
EXACT = 1e-7  # ‖c − aᵀA‖ / ‖c‖ below which c is a combination of messages
VISIBLE = 1e-6  # singular values of S below this belong to secrets that no message contains
CANDIDATE = 1e-12  # share of ‖c‖² that may be missing in the fast first check
NEGLIGIBLE = 1e-12  # coefficients left out of a combination, relative to its largest
CHECKS = 16  # combinations without secrets that are looked at
BLOCK = 256  # rows added to the basis at a time


class MessageRow(NamedTuple):
    """One row of one message, as indices into the transcript."""

    message: int
    row: int


@dataclass(frozen=True, eq=False)
class Derivation:
    """Numbers that follow from known ones through a deterministic step f of one client.

    "function"     f(x, …), from x, … = `sources`
    "inverse"      x, from f(x) = `sources`
    "fixed point"  x, from x + ratio · f(x) = `sources`
    """

    how: Literal["function", "inverse", "fixed point"]
    unknown: Unknown  # f(x)
    sources: tuple[Combination, ...]
    ratio: float = 0.0


@dataclass(frozen=True, eq=False)
class Combination:
    """Σ coefficients · messages + Σ coefficients · derived − Σ coefficients · own.

    The coefficients are the same for every coordinate.
    """

    messages: tuple[tuple[MessageRow, float], ...]
    own: tuple[tuple[Unknown, float], ...]  # unknowns that the adversary has itself
    derived: tuple[tuple[Derivation, float], ...] = ()

    @property
    def gain(self) -> float:
        """Σ |coefficients|: an upper bound on how much rounding errors of messages grow."""
        return sum(abs(coefficient) for _, coefficient in (*self.messages, *self.derived))


@dataclass(frozen=True, eq=False)
class Estimate:
    """What an adversary knows about one quantity."""

    status: Status
    variance: float | None  # of the noise per coordinate; 0 if exact, None if hidden
    combination: Combination | None  # the estimate; None if hidden
    noise: tuple[tuple[Unknown, float], ...] = ()  # what remains in the estimate


HIDDEN = Estimate("hidden", None, None)


class LinearKnowledge:
    """One adversary's view of one run, factorized once; every query after that is a product."""

    def __init__(self, run: SymbolicRun, adversary: Adversary) -> None:
        adversary.check_graph(run.clients, run.transcript.edges)
        self.run = run
        self.adversary = adversary
        is_own = np.array([adversary.knows(unknown) for unknown in run.unknowns], dtype=bool)
        self._own_columns = np.flatnonzero(is_own)
        self._hidden_columns = np.flatnonzero(~is_own)
        self.hidden = [run.unknowns[column] for column in self._hidden_columns]
        self._is_noise = np.array([unknown.kind == "noise" for unknown in self.hidden], dtype=bool)
        self.seen: list[MessageRow | Derivation] = []
        self._space = RowSpace(len(self.hidden))
        block: list[Matrix] = []
        for message, rows in adversary.view(run.transcript):
            if message in run.plain_messages:
                continue
            self.seen += [MessageRow(message, row) for row in rows.tolist()]
            sent = run.transcript.messages[message].rows
            columns = self._hidden_columns[self._hidden_columns < sent.shape[1]]
            block.append(sent[rows].numpy()[:, columns])
            if sum(map(len, block)) >= BLOCK:
                self._space.add(_stacked(block))
                block = []
        if block:
            self._space.add(_stacked(block))

    def derive(self, vectors: Matrix, derivations: list[Derivation]) -> None:
        """Add vectors [c, U] that the adversary derives."""
        self.seen += derivations
        self._space.add(self.hidden_part(vectors))
        for name in ("_noise_basis", "_decomposition"):
            self.__dict__.pop(name, None)

    @property
    def basis(self) -> Matrix:
        """Orthonormal rows [rank, hidden] that span the messages over the hidden unknowns."""
        return self._space.basis

    def vector(self, *terms: tuple[Unknown, float]) -> Matrix:
        """A combination of unknowns as coefficients over all of them [U]."""
        vector = np.zeros(len(self.run.unknowns))
        for unknown, coefficient in terms:
            if unknown not in self.run.columns:
                raise Misuse(
                    f"{unknown} does not occur in the run.", "Name an unknown of `run.unknowns`."
                )
            vector[self.run.columns[unknown]] += coefficient
        return vector

    def pad(self, row: Tensor) -> Matrix:
        """Coefficients over the first unknowns, such as a model's, as coefficients over all [U]."""
        padded: Matrix = self.run.wide(row[None])[0]
        return padded

    def hidden_part(self, vectors: Matrix) -> Matrix:
        """The coefficients [c, hidden] of vectors [c, U] over the hidden unknowns."""
        return vectors[:, self._hidden_columns]

    def exact(self, vectors: Matrix) -> Flags:
        """Which of the vectors [c, U] the adversary can compute."""
        hidden = self.hidden_part(vectors)
        size = np.square(hidden).sum(axis=1)
        # Most vectors contain few unknowns.
        nonzero = np.flatnonzero(hidden.any(axis=0))
        coordinates = hidden[:, nonzero] @ self.basis[:, nonzero].T
        exact: Flags = size - np.square(coordinates).sum(axis=1) <= CANDIDATE * size
        # Only these are worth the long product, which does not cancel.
        (likely,) = np.nonzero(exact)
        missing = np.linalg.norm(hidden[likely] - coordinates[likely] @ self.basis, axis=1)
        exact[likely] = missing <= EXACT * np.sqrt(size[likely])
        return exact

    def variances(self, vectors: Matrix) -> Matrix:
        """Variance [c] of the best estimate of each vector: 0 if exact, infinite if hidden."""
        exact = self.exact(vectors)
        variances = np.where(exact, 0.0, np.inf)
        # Without noise a vector is either exact or hidden.
        if exact.all() or not self._is_noise.any():
            return variances
        rest = self.hidden_part(vectors[~exact])
        coordinates, visible = self._estimate(rest)
        if self._same_deviation and not rest[:, self._is_noise].any():
            # ‖Nᵀa‖² = ‖a‖² − ‖Sᵀa‖², as the rows of Q are orthonormal: no long product is needed.
            noisy = np.square(coordinates).sum(axis=1) - np.square(rest).sum(axis=1)
            noisy = np.maximum(noisy, 0.0) * self._deviations[0] ** 2
        else:
            noisy = np.square(self._error(coordinates, rest) * self._deviations).sum(axis=1)
        variances[~exact] = np.where(visible, noisy, np.inf)
        return variances

    def estimate(self, vector: Matrix) -> Estimate:
        """What is known about one vector [U], with the combination that proves it."""
        hidden = self.hidden_part(vector[None])
        if self.exact(vector[None])[0]:
            return Estimate("exact", 0.0, self._combination(self.basis @ hidden[0], vector))
        if not self._is_noise.any():
            return HIDDEN
        coordinates, visible = self._estimate(hidden)
        if not visible[0]:
            return HIDDEN
        error = self._error(coordinates, hidden)[0]
        variance = float(np.square(error * self._deviations).sum())
        noise = [unknown for unknown in self.hidden if unknown.kind == "noise"]
        terms = zip(noise, error.tolist(), strict=True)
        remaining = tuple((unknown, x) for unknown, x in terms if abs(x) > EXACT)
        return Estimate("noisy", variance, self._combination(coordinates[0], vector), remaining)

    def noise_alone(self) -> list[tuple[Combination, float]]:
        """Combinations of messages in which all secrets cancel, and the variance of their noise."""
        if not self._is_noise.any():
            return []
        *_, free = self._decomposition
        chosen = free[:, :: -(-free.shape[1] // CHECKS) or 1].T
        nothing = np.zeros(len(self.run.unknowns))
        deviations = (chosen @ self._noise_basis) * self._deviations
        variances = np.square(deviations).sum(axis=1)
        return [
            (self._combination(row, nothing), variance)
            for row, variance in zip(chosen, variances.tolist(), strict=True)
            if variance > 0
        ]

    @cached_property
    def _noise_basis(self) -> Matrix:
        """N [rank, noise]."""
        return self.basis[:, self._is_noise]

    @property
    def _same_deviation(self) -> bool:
        return bool(np.ptp(self._deviations) <= EXACT * self._deviations.max())

    @cached_property
    def _deviations(self) -> Matrix:
        """Standard deviations [noise] of the hidden noise."""
        laws = [self.run.laws[unknown] for unknown in self.hidden if unknown.kind == "noise"]
        deviations: Matrix = np.sqrt(np.array([law.variance for law in laws]))
        return deviations

    @cached_property
    def _decomposition(self) -> tuple[Matrix, Matrix, Matrix, Matrix]:
        """U [rank, k], σ [k], V [k, secrets] of S for nonzero σ, and Z [rank, rank − k]."""
        secrets = self.basis[:, ~self._is_noise]
        squares, vectors = linalg.eigh(secrets @ secrets.T, check_finite=False)
        kept = squares > VISIBLE**2
        left, sigma = vectors[:, kept], np.sqrt(np.minimum(squares[kept], 1.0))
        return left, sigma, (left.T @ secrets) / sigma[:, None], vectors[:, ~kept]

    def _estimate(self, hidden: Matrix) -> tuple[Matrix, Flags]:
        """Best estimates as combinations [c, rank] of the basis, and which of them are unbiased."""
        left, sigma, right, free = self._decomposition
        secrets = hidden[:, ~self._is_noise]
        along = secrets @ right.T
        missing = np.linalg.norm(secrets - along @ right, axis=1)
        visible: Flags = missing <= EXACT * np.linalg.norm(secrets, axis=1)
        coordinates = (along / sigma) @ left.T
        if self._same_deviation:
            if (noise := hidden[:, self._is_noise]).any():
                coordinates += (noise @ self._noise_basis.T) @ free @ free.T
        elif free.shape[1]:
            moves = (free.T @ self._noise_basis) * self._deviations
            error = self._error(coordinates, hidden) * self._deviations
            best, *_ = linalg.lstsq(moves.T, -error.T, lapack_driver="gelsy")
            coordinates += (free @ best).T
        return coordinates, visible

    def _error(self, coordinates: Matrix, hidden: Matrix) -> Matrix:
        """Coefficients [c, noise] of the noise that an estimate adds to the quantity."""
        error: Matrix = coordinates @ self._noise_basis - hidden[:, self._is_noise]
        return error

    def _combination(self, coordinates: Matrix, target: Matrix) -> Combination:
        """The combination with these coordinates whose own unknowns add up to the target's."""
        coefficients = self._space.combination(coordinates[None])[0]
        rows = [self.seen[pivot] for pivot in self._space.pivots]
        negligible = NEGLIGIBLE * max(1.0, float(np.abs(coefficients).max(initial=0.0)))
        pairs = zip(rows, coefficients.tolist(), strict=True)
        used = [(seen, a) for seen, a in pairs if abs(a) > negligible]
        messages = [(seen, a) for seen, a in used if isinstance(seen, MessageRow)]
        derived = [(seen, a) for seen, a in used if isinstance(seen, Derivation)]
        total = -target
        for seen, a in messages:
            row = self.run.transcript.messages[seen.message].rows[seen.row].numpy()
            total[: len(row)] += a * row
        for derivation, a in derived:
            total += a * self.derived_vector(derivation)
        own = [
            (self.run.unknowns[column], float(total[column]))
            for column in self._own_columns
            if abs(total[column]) > NEGLIGIBLE
        ]
        return Combination(tuple(sorted(messages)), tuple(own), tuple(derived))

    def derived_vector(self, derivation: Derivation) -> Matrix:
        """What a derivation gives, as coefficients over all unknowns [U]."""
        if derivation.how == "function":
            return self.vector((derivation.unknown, 1.0))
        (x,) = self.run.nonlinear_steps[derivation.unknown].inputs
        return self.pad(x)


def _stacked(blocks: list[Matrix]) -> Matrix:
    """Rows of different lengths, padded with zeros to the longest."""
    width = max(rows.shape[1] for rows in blocks)
    return np.concatenate([np.pad(rows, ((0, 0), (0, width - rows.shape[1]))) for rows in blocks])
