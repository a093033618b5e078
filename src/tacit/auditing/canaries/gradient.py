"""Gradient canaries: a coin decides whether a sample with a canary as its gradient is there.

They are for sums over Poisson samples. They are drawn, clipped and summed by the code that trains.
The victim of copy r has one sample x with the loss ⟨θ, x⟩, so that its gradient is x. If the coin
of the copy is heads, x = 10 C uᵣ with a direction uᵣ of length one; else x is zero, which is as
good as no sample. Other clients have none. If samples are drawn too often, or are not clipped,
canaries show it.

The adversary's statistic is the likelihood ratio of present and absent. Projected on the canary's
direction, what an adversary sees of the sums is

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

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.sampled_noise import DIAGONAL
from tacit.auditing.bounds.secret_rows import SecretRows, normalized, row_sizes
from tacit.auditing.canaries.copies import (
    Canaries,
    ObservedCopies,
    observed_rows,
    random_directions,
)
from tacit.auditing.canaries.result import Kind
from tacit.auditing.scoring.coin_guesses import Coins, sampled_trade_off_epsilon
from tacit.auditing.symbolic.row_space import Matrix
from tacit.auditing.symbolic.symbolic_run import SymbolicRun
from tacit.core.fixed_point import RESERVED
from tacit.core.hosted_clients import Sampling
from tacit.core.noise import Gaussian
from tacit.core.rows import shared
from tacit.engines.gradients.objective import HostedObjective
from tacit.privacy.clipping import Clip
from tacit.tasks.parts import Parts
from tacit.tasks.task import Task

# Eigenvalues of the covariance of normalized rows below this, over the largest, are rounding.
NOISELESS = 1e-13
# Norm of a sample's gradient before clipping, over the clipping bound.
TOO_LONG = 10.0


@dataclass(frozen=True, eq=False)
class GradientCanaries(Canaries):
    """A canary among the victim's data, or none, in every copy: coins are bool [copies].

    Attributes:
        victim: The client of a copy that has the canary or not.
        sums: Draws, clips and sums the samples of the victims of all copies.
    """

    victim: int
    sums: HostedObjective

    def clipped_sum(
        self, theta: Tensor, sampling: Sampling, number: int, out: Tensor | None = None
    ) -> Tensor:
        def draw(copies: Tensor, width: int) -> Tensor:
            return sampling.draw(self.clients * copies + self.victim, width)

        # Gradients do not depend on models, and those of one model take less time.
        model = shared(theta[:1], len(self.coins))
        of_victims = self.sums.clipped_sum(model, replace(sampling, draw=draw), number)
        out = torch.empty_like(theta) if out is None else out
        out.zero_()[self.victim :: self.clients] = of_victims
        return out


@dataclass(frozen=True, eq=False)
class GradientLikelihood:
    """Scores whether a canary is among a victim's data by what an adversary sees.

    Attributes:
        rows: What the adversary sees of the victim.
        component: The honest clients whose sum the adversary sees.
        rates: Probabilities q with which samples are in the victim's sums, [T].
        bounds: Clipping bounds C of these sums, [T].
        deviations: Standard deviations s of the noise on each sum, [T].
    """

    kind: ClassVar[Kind] = "gradient"
    label: ClassVar[str] = "gradient canaries"
    # In all messages of the copies that run together.
    numbers: ClassVar[int] = 1 << 22

    rows: SecretRows
    component: tuple[int, ...]
    rates: Matrix
    bounds: Matrix
    deviations: Matrix
    _filter: Matrix  # [T, m]

    @classmethod
    def of(cls, run: SymbolicRun, adversary: Adversary, victim: int) -> GradientLikelihood | str:
        """The statistic, or the reason why there is none.

        Args:
            run: The run on symbols, with all its messages.
            adversary: Whose view is used. It knows the data of all other clients.
            victim: The client that has the canary or not.
        """
        component = adversary.honest_component(victim, run.transcript)
        view = SecretRows.of(run, adversary, victim, component)
        if view.masked:
            return "messages are masked"
        if nonlinear := [u for u in view.others if u.kind == "nonlinear"]:
            return f"messages contain {nonlinear[0]}, which is not linear in the samples"
        sums = view.gradients
        if not sums or not all(u.when in run.samplings for u in sums):
            return "the victim does not send sums over samples"
        if not all(isinstance(law, Gaussian) for law in view.laws):
            return "noise is not Gaussian"
        bounds = np.array([run.samplings[u.when].bound for u in sums])
        rows = view.signal * bounds, view.added * view.deviations
        signal, noise = normalized(*rows)
        matched = signal.T @ np.linalg.pinv(noise @ noise.T, NOISELESS, hermitian=True)
        information = matched @ signal
        diagonal = np.diag(information)
        if (np.abs(information - np.diag(diagonal)) > DIAGONAL * diagonal.max()).any():
            return "sums of several iterations are seen under the same noise"
        if any(u.tag.startswith(RESERVED) for u in view.known_noise):
            return "messages contain totals, with the noise of corrupt clients"
        return cls(
            view,
            tuple(sorted(component)),
            np.array([run.samplings[u.when].rate for u in sums]),
            bounds,
            bounds / np.sqrt(diagonal),
            (bounds / diagonal)[:, None] * matched / row_sizes(*rows),
        )

    @property
    def view(self) -> str:
        """Names what is seen: sums over these clients."""
        return str(self.component)

    def draw(
        self, copies: int, width: int, seed: int, dtype: torch.dtype, device: torch.device | str
    ) -> tuple[GradientCanaries, Coins]:
        """A canary among the victim's data, or none, in so many copies, and the coins."""
        coins, bound = np.random.default_rng((seed, 0)).random(copies) < 0.5, self.bounds.max()
        directions = random_directions(copies, width, Clip(float(bound)), seed)
        heads = torch.as_tensor(coins)
        samples = (heads[:, None] * TOO_LONG * float(bound) * directions).to(dtype)
        parts = Parts((samples,), torch.arange(copies), torch.arange(copies + 1))
        start = torch.zeros(width, dtype=dtype)
        task = replace(Task(start, [samples[:1]], loss=inner_product, batch_size=1), parts=parts)
        loader = task.loader(torch.arange(copies), 0, device)
        sums = HostedObjective(task, range(copies), loader, "stacked", 0, device)
        clients, victim = self.rows.run.clients, self.rows.victim
        return GradientCanaries(heads, directions, clients, dtype, device, victim, sums), coins

    def scores(self, observed: ObservedCopies) -> Matrix:
        """Logarithms [copies] of the likelihood ratio of present and absent."""
        x, bounds, rates = self.noisy_sums(observed), self.bounds, self.rates
        drawn = bounds * (2 * x - bounds) / (2 * np.square(self.deviations))
        with np.errstate(divide="ignore"):
            ratio: Matrix = np.logaddexp(np.log1p(-rates), np.log(rates) + drawn).sum(axis=1)
        return ratio

    def noisy_sums(self, observed: ObservedCopies) -> Matrix:
        """The x [copies, T]: the victim's sums along the directions of the canaries, with noise."""
        return observed_rows(self.rows, observed) @ self._filter.T

    def gaussian_epsilon(
        self, scores: Matrix, coins: Coins, delta: float, confidence: float
    ) -> float | None:
        """A lower bound on ε if the noise is Gaussian; None if sums are sampled differently."""
        rates = np.unique(self.rates)
        if len(rates) > 1:
            return None
        sums = len(self.rates)
        return sampled_trade_off_epsilon(scores, coins, float(rates[0]), sums, delta, confidence)


def inner_product(theta: Tensor, x: Tensor) -> Tensor:
    """The mean of ⟨θ, x⟩ over a batch [b, P]."""
    return (x @ theta).mean()
