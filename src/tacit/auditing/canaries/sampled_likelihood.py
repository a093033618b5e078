"""The adversary's statistic for a sample canary: the likelihood ratio of present and absent.

Projected on the canary's direction, what an adversary sees of sums over Poisson samples is

    y = S G + K + N D ξ

with the victim's sums G [T], the noise ξ that the adversary does not know, its standard deviations
D, and K, the noise of corrupt clients. The data of all other clients are known, and zero here. If
F = Sᵀ(N D² Nᵀ)⁺S is diagonal, as the bound for sums requires (`sampled_noise`), all that y tells is

    x = F⁻¹ Sᵀ(N D² Nᵀ)⁺ (y − K) = G + noise of standard deviations sₜ = Fₜₜ^(−½)

independent for each t. Without the canary Gₜ is zero; with it Gₜ is C with probability q. So

    score = Σₜ log((1 − q) + q e^{(2 xₜ C − C²)/(2 sₜ²)})

is the logarithm of the likelihood ratio. Of a masked sum an adversary sees the sum over the
victim's component of the graph without corrupt clients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.sampled_noise import DIAGONAL
from tacit.auditing.bounds.secret_rows import normalized, row_sizes
from tacit.auditing.canaries.copies import ObservedCopies
from tacit.auditing.symbolic.row_space import Matrix
from tacit.auditing.symbolic.symbols import SymbolicRun
from tacit.core.fixed_point import RESERVED
from tacit.core.noise import Gaussian
from tacit.record.transcript import Message
from tacit.record.unknowns import Unknown

# Eigenvalues of the covariance of normalized rows below this, over the largest, are rounding.
NOISELESS = 1e-13


@dataclass(frozen=True, eq=False)
class SeenRows:
    """Rows of coefficients that an adversary sees, and where the same rows of a trial are.

    Attributes:
        matrix: Coefficients over all unknowns, [m, U].
        places: Of each row, the message and the row within what is observed of it.
    """

    matrix: Matrix
    places: list[tuple[int, int]]

    @classmethod
    def of(cls, run: SymbolicRun, adversary: Adversary, component: frozenset[int]) -> SeenRows:
        """All messages that the adversary sees; of a masked sum, that over a component."""
        messages = run.transcript.messages
        rows: list[Matrix] = []
        places: list[tuple[int, int]] = []
        for index, seen in adversary.view(run.transcript):
            message = messages[index]
            if index in run.plain_messages or _is_sent_up(message):
                continue
            if message.modulus is not None:
                rows.append(_padded(component_sum(messages[index - 1], message, component), run))
                places.append((index, 0))
                continue
            rows += [_padded(message.rows[row].numpy(), run) for row in seen.tolist()]
            places += [(index, row) for row in seen.tolist()]
        return cls(np.stack(rows) if rows else np.zeros((0, len(run.unknowns))), places)

    def observed(self, copies: ObservedCopies) -> Matrix:
        """The same rows of all copies, along their directions: [copies, m]."""
        columns = []
        for message, row in self.places:
            rows = copies.seen[message]
            assert rows is not None, "a message has another shape than on symbols"
            columns.append(rows[:, row])
        stacked: Matrix = torch.stack(columns, 1).numpy()
        return stacked


def component_sum(up: Message, down: Message, component: frozenset[int]) -> Matrix:
    """What clients of a component contribute to a total, from messages along the tree [U'].

    A client's own masked row is what it sends up, less what its children send up; the root's is
    the total, less what its children send up. Masks between clients of the component cancel.
    """
    assert up.target is not None
    ends = list(zip(up.source.tolist(), up.target.tolist(), strict=True))
    signs = [(child in component) - (parent in component) for child, parent in ends]
    total = torch.tensor(signs, dtype=up.rows.dtype) @ up.rows
    root = {parent for _, parent in ends} - {child for child, _ in ends}
    if root <= component:
        total = total + down.rows[0]
    return np.asarray(total.numpy())


@dataclass(frozen=True, eq=False)
class SampledLikelihood:
    """Scores whether a canary is among a victim's data by what an adversary sees.

    Attributes:
        victim: The client.
        component: The honest clients whose sum the adversary sees.
        rates: Probabilities q with which samples are in the victim's sums, [T].
        bounds: Clipping bounds C of these sums, [T].
        deviations: Standard deviations s of the noise on each sum, [T].
    """

    victim: int
    component: frozenset[int]
    rates: Matrix
    bounds: Matrix
    deviations: Matrix
    _run: SymbolicRun
    _seen: SeenRows
    _filter: Matrix  # [T, m]
    _known_noise: dict[Unknown, Matrix]  # coefficients [m]

    @classmethod
    def of(cls, run: SymbolicRun, adversary: Adversary, victim: int) -> SampledLikelihood | str:
        """The statistic, or the reason why there is none.

        Args:
            run: The run on symbols, with all its messages.
            adversary: Whose view is used. It knows the data of all other clients.
            victim: The client that has the canary or not.
        """
        component = adversary.honest_component(victim, run.transcript)
        seen = SeenRows.of(run, adversary, component)
        present = [run.unknowns[k] for k in np.flatnonzero(seen.matrix.any(axis=0))]
        hidden = [u for u in present if not adversary.knows(u)]
        if other := [u for u in hidden if u.kind in ("mask", "nonlinear")]:
            return f"messages contain {other[0]}, which is not linear in the samples"
        sums = [u for u in hidden if u.kind == "gradient" and u.client == victim]
        if not sums or not all(u.when in run.samplings for u in sums):
            return "the victim does not send sums over samples"
        noise = [u for u in hidden if u.kind == "noise"]
        laws = [run.laws[u] for u in noise]
        if not all(isinstance(law, Gaussian) for law in laws):
            return "noise is not Gaussian"
        scale = np.sqrt([law.variance for law in laws])
        bounds = np.array([run.samplings[u.when].bound for u in sums])
        signal = seen.matrix[:, [run.columns[u] for u in sums]]
        added = seen.matrix[:, [run.columns[u] for u in noise]] * scale
        sizes = row_sizes(signal * bounds, added)
        signal_of_one, noise_of_one = normalized(signal * bounds, added)
        covariance = noise_of_one @ noise_of_one.T
        matched = signal_of_one.T @ np.linalg.pinv(covariance, NOISELESS, hermitian=True)
        information = matched @ signal_of_one
        own = np.diag(information)
        if (np.abs(information - np.diag(own)) > DIAGONAL * own.max()).any():
            return "sums of several iterations are seen under the same noise"
        known = [u for u in present if u.kind == "noise" and adversary.knows(u)]
        if any(u.tag.startswith(RESERVED) for u in known):
            return "messages contain totals, with the noise of corrupt clients"
        return cls(
            victim,
            component,
            np.array([run.samplings[u.when].rate for u in sums]),
            bounds,
            bounds / np.sqrt(own),
            run,
            seen,
            (bounds / own)[:, None] * matched / sizes,
            {u: seen.matrix[:, run.columns[u]] for u in known},
        )

    def scores(self, observed: ObservedCopies) -> Matrix:
        """Logarithms [copies] of the likelihood ratio of present and absent."""
        total: Matrix = self.log_ratio(self.noisy_sums(observed)).sum(axis=1)
        return total

    def noisy_sums(self, observed: ObservedCopies) -> Matrix:
        """The x [copies, T]: the victim's sums along the directions of the canaries, with noise."""
        rest = self._seen.observed(observed)
        for unknown, column in self._known_noise.items():
            rest = rest - np.outer(observed.noise(unknown, self._run.laws[unknown]), column)
        found: Matrix = rest @ self._filter.T
        return found

    def log_ratio(self, x: Matrix) -> Matrix:
        """log((1 − q) + q e^{(2xC − C²)/(2s²)}) for noisy sums x [copies, T]."""
        bounds, rates = self.bounds, self.rates
        drawn = bounds * (2 * x - bounds) / (2 * np.square(self.deviations))
        with np.errstate(divide="ignore"):
            ratio: Matrix = np.logaddexp(np.log1p(-rates), np.log(rates) + drawn)
        return ratio


def _is_sent_up(message: Message) -> bool:
    return message.modulus is not None and message.tag.endswith("/up")


def _padded(row: Matrix, run: SymbolicRun) -> Matrix:
    return np.pad(row, (0, len(run.unknowns) - len(row)))
