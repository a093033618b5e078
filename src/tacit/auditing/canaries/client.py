"""Client canaries: all gradients of a client have a sign that its coin chooses.

Client i of copy r has the gradients

    gᵢ⁽ᵏ⁾ = cᵣᵢ sₖ C uᵣ

with a coin cᵣᵢ = ±1, a sign sₖ for the k-th gradient of every client, the clipping bound C, and a
direction uᵣ of length one. The adversary's statistic is the likelihood ratio of the victim's coin.
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
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.secret_rows import SecretRows, normalized, row_sizes
from tacit.auditing.canaries.copies import (
    Canaries,
    ObservedCopies,
    observed_rows,
    random_directions,
)
from tacit.auditing.canaries.result import Kind
from tacit.auditing.scoring.coin_guesses import Coins, gaussian_trade_off_epsilon
from tacit.auditing.symbolic.row_space import Matrix
from tacit.auditing.symbolic.symbolic_run import SymbolicRun
from tacit.core.noise import Gaussian, Laplace
from tacit.privacy.clipping import Clip

SAME = 1 - 1e-6  # share of the information from which on the rest is rounding
NOISELESS = 1e-10  # singular values of normalized noise below this, relative to the largest


@dataclass(frozen=True, eq=False)
class ClientCanaries(Canaries):
    """Gradients that are canaries, whatever the models are; coins are ±1 of each client.

    Attributes:
        signs: The sign of each gradient by the number of its batch; 1 where there is none.
        clip: Gives the length of canaries.
    """

    signs: Mapping[int, float]
    clip: Clip

    def grad(self, theta: Tensor, number: int, out: Tensor | None = None) -> Tensor:
        size = self.signs.get(number, 1.0) * self.clip.bound
        rows = self.coins[:, :, None] * (size * self.directions)[:, None, :]
        rows = rows.reshape(theta.shape).to(self.device, self.dtype)
        # As every gradient: rounding must not make it longer than the bound.
        rows = self.clip.clip_(rows)
        return rows if out is None else out.copy_(rows)


@dataclass(frozen=True, eq=False)
class ClientLikelihood:
    """Scores the coin of one victim by what an adversary sees.

    Attributes:
        rows: What the adversary sees of the victim.
        clip: How gradients are clipped.
        signs: Signs of the gradients, by the number of their batch.
        information: μ² = (2C)² sᵀFs of the coin, if noise were Gaussian.
    """

    kind: ClassVar[Kind] = "client"
    label: ClassVar[str] = "canaries"
    # In all messages of the copies that run together.
    numbers: ClassVar[int] = 1 << 19

    rows: SecretRows
    clip: Clip
    signs: dict[int, float]
    information: float
    _effects: Matrix  # [N, m]: what the coin of each client adds to the messages
    _whiten: Matrix  # [K', m]

    @classmethod
    def of(
        cls, run: SymbolicRun, adversary: Adversary, victim: int, clip: Clip
    ) -> ClientLikelihood | str:
        """The statistic, or the reason why there is none.

        Args:
            run: The run on symbols, with all its messages.
            adversary: Whose view is used. It knows the gradients of all other clients.
            victim: The client whose coin is guessed.
            clip: How gradients are clipped.
        """
        view = SecretRows.of(run, adversary, victim)
        matrix = view.coefficients
        present = [run.unknowns[k] for k in np.flatnonzero(matrix.any(axis=0))]
        if nonlinear := [u for u in (*view.others, *present) if u.kind == "nonlinear"]:
            return f"messages contain the non-linear step {nonlinear[0].tag!r}"
        if view.masked:
            return "messages are masked"
        if not view.gradients:
            return "no message depends on the victim's gradients"
        if not view.noise:
            return "no message has noise that the adversary does not know"
        rows = view.signal * clip.sensitivity, view.added * view.deviations
        signal, noise = normalized(*rows)
        whiten = np.linalg.pinv(noise, rcond=NOISELESS)
        white = whiten @ signal
        signs = dict.fromkeys(run.points, 1.0)
        best = worst_signs(white.T @ white)
        signs |= {u.when: s for u, s in zip(view.gradients, best.tolist(), strict=True)}
        effects = np.zeros((run.clients, len(matrix)))
        for unknown in present:
            if unknown.kind == "gradient":
                size = signs[unknown.when] * clip.bound
                effects[unknown.client] += size * matrix[:, run.columns[unknown]]
        return cls(
            view,
            clip,
            signs,
            float(np.square(white @ best).sum()),
            effects,
            whiten / row_sizes(*rows),
        )

    @classmethod
    def best(
        cls, run: SymbolicRun, adversary: Adversary, victim: int, clip: Clip
    ) -> ClientLikelihood | str:
        """The same, but from messages alone if what corrupt clients hold adds nothing.

        That is the more robust statistic: it does not believe that noise was added as drawn.
        """
        every = cls.of(run, adversary, victim, clip)
        messages = cls.of(run, replace(adversary, corrupt=frozenset()), victim, clip)
        if isinstance(every, str) or isinstance(messages, str):
            return every
        return messages if messages.information >= SAME * every.information else every

    @property
    def view(self) -> str:
        """Names what is seen: the adversary whose messages are enough."""
        return str(self.rows.adversary)

    @property
    def component(self) -> tuple[int, ...]:
        """Clients over which totals are observed: these statistics have none."""
        return ()

    def draw(
        self, copies: int, width: int, seed: int, dtype: torch.dtype, device: torch.device | str
    ) -> tuple[ClientCanaries, Coins]:
        """Canaries of all clients in so many copies, and the victim's coins."""
        clients = len(self._effects)
        coins = np.random.default_rng((seed, 0)).choice((-1.0, 1.0), (copies, clients))
        directions = random_directions(copies, width, self.clip, seed)
        canaries = ClientCanaries(
            torch.as_tensor(coins), directions, clients, dtype, device, self.signs, self.clip
        )
        return canaries, coins[:, self.rows.victim] > 0

    def scores(self, observed: ObservedCopies) -> Matrix:
        """Scores [copies] of the victim's coin, higher for +1; the coin itself is not used."""
        victim, others = self.rows.victim, observed.canaries.coins.double().numpy().copy()
        others[:, victim] = 0.0
        rest = observed_rows(self.rows, observed) - others @ self._effects
        x, shift = rest @ self._whiten.T, self._whiten @ self._effects[victim]
        is_laplace = [isinstance(law, Laplace) for law in self.rows.laws]
        matched = 2 * x * shift
        distances = math.sqrt(2) * (np.abs(x + shift) - np.abs(x - shift))
        return np.asarray(np.where(is_laplace, distances, matched).sum(axis=1))

    def gaussian_epsilon(
        self, scores: Matrix, coins: Coins, delta: float, confidence: float
    ) -> float | None:
        """A lower bound on ε if the trade-off function is Gaussian; None if noise is not."""
        if not all(isinstance(law, Gaussian) for law in self.rows.laws):
            return None
        return gaussian_trade_off_epsilon(scores, coins, delta, confidence)


def worst_signs(fisher: Matrix) -> Matrix:
    """Signs s [T] with a large sᵀFs: no single flip makes it larger."""
    alternating = np.where(np.arange(len(fisher)) % 2 == 0, 1.0, -1.0)
    leading = np.where(np.linalg.eigh(fisher)[1][:, -1] >= 0, 1.0, -1.0)
    first, second = (_improved(fisher, start) for start in (alternating, leading))
    sizes = [float(signs @ fisher @ signs) for signs in (first, second)]
    return second if sizes[1] > (1 + 1e-9) * sizes[0] else first


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
