"""A measure: what messages that are shifted by a protection vector tell a listener about an agent's estimate.

The mixed messages y(n) = Σ aₖₗ ψₗᶜ(n) of an agent's neighbourhood are its next estimate and its last shift,
y(n) = w(n) + c(w(n − lag)). Who knows the vector's form and τ subtracts it, ŵ(n) = y(n) − c(ŵ(n − lag)), from any first
guess: c is a contraction for τ < 1, so the error shrinks by τ times its Lipschitz constant every `lag` iterations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.algorithms.dual_protection import DualProtection
from tacit.config.build import build
from tacit.config.loading import with_keys
from tacit.config.sections import Config
from tacit.record.transcript import Transcript
from tacit.simulation import Simulation
from tacit_papers.framework.artifact import MeasureContext, Values
from tacit_papers.measures.replicated_runs import replicate

LAGS = {
    1: 1,
    2: 2,
}  # of the shift behind the estimate, by the theorem about the rule: c(n − 1) or c(n − 2)
NAMES = ("as_sent", "difference", "known", "gradient")


@dataclass(frozen=True)
class ProtectionRemoval:
    """How far a listener who hears all messages is from an agent's estimate and gradient, in percent of their norms.

    `as_sent`: y(n) is taken for the estimate. `difference`: the first coordinate minus the second, as y(n) has it.
    `known`: with the vector's form and τ. `gradient`: what follows from `known` for the last step, (ŵ − ψ̂)/γ; of plain
    diffusion only, since exact diffusion hides ψ by its unknown start. Root mean squares over agents and runs, at
    the end; the curve has them for every iteration.
    """

    config: Config
    runs: int = 50

    def describe(self) -> dict[str, Any]:
        """Configuration and runs."""
        return {"unshifting": self.config.as_dict(), "runs": self.runs}

    def __call__(self, seed: int, place: MeasureContext) -> Values:
        """All runs together, listened to from the first message on."""
        made, transcript = (
            build(with_keys(self.config, "run", seed=seed, device=place.device)),
            Transcript(),
        )
        rule = made.algorithm
        assert isinstance(rule, DualProtection)
        assert rule.theorem is not None
        assert isinstance(rule.lr, float)
        simulation = Simulation(
            *replicate(rule, made.task, made.graph, self.runs),
            seed=seed,
            device=place.device,
            transcript=transcript,
        )
        simulation.start()
        weights = torch.as_tensor(made.graph.W, dtype=made.task.dtype, device=simulation.device)
        listener = Eavesdropper(
            weights,
            rule.lr,
            LAGS[rule.theorem],
            lambda w: rule.protection.vector("guess", w, simulation.here),
        )
        curve: dict[str, list[float]] = {"round": [], **{name: [] for name in NAMES}}
        for n in range(1, made.steps + 1):
            before = simulation.state.theta.clone()
            gradient = simulation.here.at(simulation.t).grad(
                before
            )  # the truth: the batch of the coming step
            transcript.messages.clear()
            simulation.step()
            heard = listener.hear(transcript.messages[0].rows)
            now = simulation.state.theta
            curve["round"].append(n)
            curve["as_sent"].append(_percent(heard.mixed - now, now))
            curve["difference"].append(_percent(_first_difference(heard.mixed - now), now))
            curve["known"].append(_percent(heard.estimate - now, now))
            if rule.theorem == 1:
                curve["gradient"].append(_percent(heard.gradient - gradient, gradient))
            place.said("iteration", n, made.steps)
        found = {name: column for name, column in curve.items() if column}
        tail = max(1, made.steps // 4)
        ends = {
            name: sum(found[name][-tail:]) / tail if name != "known" else found[name][-1]
            for name in NAMES
            if name in found
        }
        return ends | {"curve": found}


@dataclass(frozen=True, eq=False)
class Estimate:
    """What a listener makes of one iteration, all [N, L]."""

    mixed: Tensor  # y(n)
    estimate: Tensor  # ŵ(n)
    gradient: Tensor  # of the step from w(n − 1), as far as M left it


class Eavesdropper:
    """Hears what all agents of all runs send; knows A, γ, and the vector's form and τ. Begins with zero guesses."""

    def __init__(
        self, weights: Tensor, lr: float, lag: int, vector: Callable[[Tensor], Tensor]
    ) -> None:
        self._weights, self._lr, self._vector = weights, lr, vector
        self._guesses: list[Tensor] = []  # ŵ(n − lag), …, ŵ(n − 1)
        self._lag = lag

    def hear(self, sent: Tensor) -> Estimate:
        """The messages [N, L] of the next iteration."""
        if not self._guesses:
            self._guesses = [torch.zeros_like(sent)] * self._lag
        shift = self._vector(self._guesses[0])
        agents = len(self._weights)
        mixed = torch.einsum(
            "kl,rlp->rkp", self._weights, sent.view(-1, agents, sent.shape[1])
        ).reshape_as(sent)
        last, estimate = self._guesses[-1], mixed - shift
        self._guesses = [*self._guesses[1:], estimate]
        return Estimate(mixed, estimate, (last - (sent - shift)) / self._lr)


def _first_difference(rows: Tensor) -> Tensor:
    return rows[:, :1] - rows[:, 1:2]


def _percent(error: Tensor, of: Tensor) -> float:
    return float(100 * error.square().sum().sqrt() / of.square().sum().sqrt())
