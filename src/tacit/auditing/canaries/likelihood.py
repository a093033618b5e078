"""The adversary's statistic for one client's canary: the likelihood ratio of its coin.

Projected on the canaries' direction, the messages that an adversary sees are

    y = c S s C + K + N D z

with the victim's coin c = ±1, the coefficients S [m, T] of its gradients and their signs s, the
coefficients N [m, K'] of the noise that the adversary does not know, its standard deviations D, and
noise z of variance one. K is known: the gradients of all other clients, whose coins the adversary
of the ledger knows, and the noise of corrupt clients. With d = (ND)⁺ S s C and x = (ND)⁺ (y − K),

    score = Σₖ log f(xₖ − dₖ) − log f(xₖ + dₖ)

For Gaussian noise that is the likelihood ratio, a matched filter on whitened messages. For Laplace
noise it is the likelihood ratio if messages determine the noise, and otherwise some statistic: a
lower bound is valid whatever the statistic.

The signs s are those that noise hides least: they maximise sᵀFs over ±1, F = Sᵀ(ND²Nᵀ)⁺S, by
flipping one sign at a time. The search begins with alternating signs, which stay if all are equally
good: noise that is used twice then cancels, where it would add up under constant signs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.secret_rows import SecretRows, normalized, row_sizes
from tacit.auditing.canaries.copies import CanaryObjective, ObservedCopies
from tacit.auditing.symbolic.row_space import Matrix
from tacit.auditing.symbolic.symbols import SymbolicRun
from tacit.core.noise import Gaussian, Laplace
from tacit.privacy.clipping import Clip
from tacit.record.unknowns import Unknown

SAME = 1 - 1e-6  # share of the information from which on the rest is rounding
NOISELESS = 1e-10  # singular values of normalized noise below this, relative to the largest


@dataclass(frozen=True, eq=False)
class CoinLikelihood:
    """Scores the coin of one victim by what an adversary sees.

    Attributes:
        victim: The client.
        adversary: Whose view is used.
        signs: Signs of the gradients, by the number of their batch.
        gaussian: Whether all noise that hides the coin is Gaussian.
        information: μ² = (2C)² sᵀFs of the coin, if noise were Gaussian.
    """

    victim: int
    adversary: Adversary
    signs: dict[int, float]
    gaussian: bool
    information: float
    _view: SecretRows
    _effects: Matrix  # [N, m]: what the coin of each client adds to the messages
    _known_noise: dict[Unknown, Matrix]  # coefficients [m]
    _whiten: Matrix  # [K', m]
    _is_laplace: npt.NDArray[np.bool_]  # [K']

    @classmethod
    def of(
        cls, run: SymbolicRun, adversary: Adversary, victim: int, clip: Clip
    ) -> CoinLikelihood | str:
        """The statistic, or the reason why there is none.

        Args:
            run: The run on symbols, with all its messages.
            adversary: Whose view is used. It knows the gradients of all other clients.
            victim: The client whose coin is guessed.
            clip: How gradients are clipped.
        """
        view = SecretRows.of(run, adversary, victim)
        if nonlinear := [unknown for unknown in view.others if unknown.kind == "nonlinear"]:
            return f"messages contain the non-linear step {nonlinear[0].tag!r}"
        if view.unmasked is not None:
            return "messages are masked"
        if not view.gradients:
            return "no message depends on the victim's gradients"
        if not view.noise:
            return "no message has noise that the adversary does not know"
        matrix = view.coefficients
        columns = {run.unknowns[k]: matrix[:, k] for k in np.flatnonzero(matrix.any(axis=0))}
        if nonlinear := [unknown for unknown in columns if unknown.kind == "nonlinear"]:
            return f"messages contain the non-linear step {nonlinear[0].tag!r}"
        laws = [run.laws[unknown] for unknown in view.noise]
        deviations = np.sqrt([law.variance for law in laws])
        sizes = row_sizes(view.signal * clip.sensitivity, view.added * deviations)[:, None]
        signal, noise = normalized(view.signal * clip.sensitivity, view.added * deviations)
        whiten = np.linalg.pinv(noise, rcond=NOISELESS)
        white = whiten @ signal
        signs = dict.fromkeys(run.points, 1.0)
        best = worst_signs(white.T @ white)
        signs |= {u.when: s for u, s in zip(view.gradients, best.tolist(), strict=True)}
        effects = np.zeros((run.clients, len(matrix)))
        known_noise = {}
        for unknown, column in columns.items():
            if unknown.kind == "gradient":
                effects[unknown.client] += signs[unknown.when] * clip.bound * column
            elif unknown.kind == "noise" and adversary.knows(unknown):
                known_noise[unknown] = column
        is_laplace = np.array([isinstance(law, Laplace) for law in laws])
        return cls(
            victim,
            adversary,
            signs,
            all(isinstance(law, Gaussian) for law in laws),
            float(np.square(white @ best).sum()),
            view,
            effects,
            known_noise,
            whiten / sizes.T,
            is_laplace,
        )

    @classmethod
    def best(
        cls, run: SymbolicRun, adversary: Adversary, victim: int, clip: Clip
    ) -> CoinLikelihood | str:
        """The same, but from messages alone if what corrupt clients hold adds nothing.

        That is the more robust statistic: it does not believe that noise was added as drawn.
        """
        every = cls.of(run, adversary, victim, clip)
        messages = cls.of(run, replace(adversary, corrupt=frozenset()), victim, clip)
        if isinstance(every, str) or isinstance(messages, str):
            return every
        return messages if messages.information >= SAME * every.information else every

    def scores(self, observed: ObservedCopies) -> Matrix:
        """Scores [copies] of the victim's coin, higher for +1; the coin itself is not used."""
        assert isinstance(observed.canaries, CanaryObjective)
        others = observed.canaries.coins.double().numpy().copy()
        others[:, self.victim] = 0.0
        rest = self._messages(observed.seen) - others @ self._effects
        for unknown, column in self._known_noise.items():
            drawn = observed.noise(unknown, self._view.run.laws[unknown])
            rest -= np.outer(drawn.numpy(), column)
        x, shift = rest @ self._whiten.T, self._whiten @ self._effects[self.victim]
        matched = 2 * x * shift
        distances = math.sqrt(2) * (np.abs(x + shift) - np.abs(x - shift))
        return np.asarray(np.where(self._is_laplace, distances, matched).sum(axis=1))

    def _messages(self, seen: list[Tensor | None]) -> Matrix:
        """The rows [copies, m] that the adversary sees."""
        messages = self._view.run.transcript.messages
        if len(seen) != len(messages):
            raise ValueError(f"{len(seen)} messages were sent, {len(messages)} on symbols")
        columns = []
        for message, row in self._view.rows:
            rows = seen[message]
            if rows is None or rows.shape[1] != len(messages[message].rows):
                raise ValueError(f"the message {messages[message].tag!r} has another shape")
            columns.append(rows[:, row])
        stacked: Matrix = torch.stack(columns, 1).numpy()
        return stacked


def worst_signs(fisher: Matrix) -> Matrix:
    """Signs s [T] with a large sᵀFs: no single flip makes it larger."""
    alternating = np.where(np.arange(len(fisher)) % 2 == 0, 1.0, -1.0)
    leading = np.where(np.linalg.eigh(fisher)[1][:, -1] >= 0, 1.0, -1.0)
    found = [_improved(fisher, start) for start in (alternating, leading)]
    sizes = [float(signs @ fisher @ signs) for signs in found]
    return found[1] if sizes[1] > (1 + 1e-9) * sizes[0] else found[0]


def _improved(fisher: Matrix, start: Matrix) -> Matrix:
    """The signs after flipping one at a time while that helps."""
    signs = start.copy()
    scale = float(np.abs(fisher).sum())
    for _ in range(4 * len(signs) ** 2):
        # Flipping sign k adds −4 sₖ Σ_{j≠k} Fₖⱼ sⱼ.
        gains = -signs * (fisher @ signs) + np.diag(fisher)
        k = int(np.argmax(gains))
        if gains[k] <= 1e-12 * scale:
            break
        signs[k] = -signs[k]
    return signs
