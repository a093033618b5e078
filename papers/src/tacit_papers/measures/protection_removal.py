"""Removing protection vectors from messages: a measure over a run, and the first gradient.

The mixed messages y(n) = Σ aₖₗ ψₗᶜ(n) of an agent's neighbourhood are its next estimate plus its
last shift, y(n) = w(n) + c(w(n − lag)). An eavesdropper that knows the vector's form and τ
subtracts it, ŵ(n) = y(n) − c(ŵ(n − lag)), from any first guess: c is a contraction for τ < 1, so
the error shrinks by τ times its Lipschitz constant every `lag` iterations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacit.algorithms.dual_protection import DualProtection
from tacit.config.sections import Config
from tacit.record.transcript import Transcript
from tacit_papers.framework.cells import FieldDescription, MeasureContext, Values
from tacit_papers.measures.recorded_run import RecordedRun
from tacit_papers.measures.replicated_runs import replicated_simulation
from tacit_papers.measures.training import next_gradients

NAMES = ("as_sent", "difference", "known", "gradient")
REPETITIONS = 200  # the error shrinks by τ with each


@dataclass(frozen=True)
class ProtectionRemoval(FieldDescription):
    """Errors of an eavesdropper's estimates of models and gradients, in percent of their norms.

    `as_sent`: y(n) is taken for the estimate. `difference`: the first coordinate minus the second,
    according to y(n). `known`: with the vector's form and τ. `gradient`: what follows from `known`
    for the last step, (ŵ − ψ̂)/γ; only for plain diffusion, since exact diffusion hides ψ by its
    unknown start. Root mean squares over agents and runs, at the end and, as curve, over time.
    """

    label = ("unshifting", "config")
    config: Config
    runs: int = 50

    def __call__(self, seed: int, context: MeasureContext) -> Values:
        experiment, transcript = context.experiment(self.config, seed), Transcript()
        rule, steps = experiment.algorithm, experiment.steps
        assert isinstance(rule, DualProtection)
        assert rule.theorem is not None
        assert isinstance(rule.lr, float)
        simulation = replicated_simulation(experiment, self.runs, transcript)
        simulation.start()
        dtype, device = experiment.task.dtype, simulation.device
        eavesdropper = Eavesdropper(
            torch.as_tensor(experiment.graph.W, dtype=dtype, device=device),
            rule.lr,
            # The shift is that of n − 1 in theorem 1 and that of n − 2 in theorem 2.
            rule.theorem,
            lambda w: rule.protection.vector("guess", w, simulation.here),
        )
        curve: dict[str, list[float]] = {"round": [], **{name: [] for name in NAMES}}
        for n in range(1, steps + 1):
            gradient = next_gradients(simulation)
            transcript.messages.clear()
            simulation.step()
            found, now = eavesdropper.receive(transcript.messages[0].rows), simulation.state.theta
            off = found.mixed - now
            curve["round"].append(n)
            curve["as_sent"].append(_percent(off, now))
            curve["difference"].append(_percent(off[:, :1] - off[:, 1:2], now))
            curve["known"].append(_percent(found.estimate - now, now))
            if rule.theorem == 1:
                curve["gradient"].append(_percent(found.gradient - gradient, gradient))
            context.progress("iteration", n, steps)
        columns = {name: column for name, column in curve.items() if column}
        tail = max(1, steps // 4)
        ends = {
            name: sum(columns[name][-tail:]) / tail if name != "known" else columns[name][-1]
            for name in NAMES
            if name in columns
        }
        return ends | {"curve": columns}


@dataclass(frozen=True, eq=False)
class Estimates:
    """What an eavesdropper computes in one iteration, all [N, L]."""

    mixed: Tensor  # y(n)
    estimate: Tensor  # ŵ(n)
    gradient: Tensor  # of the step from w(n − 1), times M


class Eavesdropper:
    """Sees the messages of all agents; knows A, γ, and the vector's form and τ. Starts at zero."""

    def __init__(
        self, weights: Tensor, lr: float, lag: int, vector: Callable[[Tensor], Tensor]
    ) -> None:
        self._weights, self._lr, self._lag, self._vector = weights, lr, lag, vector
        self._guesses: list[Tensor] = []  # ŵ(n − lag), …, ŵ(n − 1)

    def receive(self, sent: Tensor) -> Estimates:
        """The messages [N, L] of the next iteration."""
        if not self._guesses:
            self._guesses = [torch.zeros_like(sent)] * self._lag
        shift = self._vector(self._guesses[0])
        by_run = sent.view(-1, len(self._weights), sent.shape[1])
        mixed = torch.einsum("kl,rlp->rkp", self._weights, by_run).reshape_as(sent)
        last, estimate = self._guesses[-1], mixed - shift
        self._guesses = [*self._guesses[1:], estimate]
        return Estimates(mixed, estimate, (last - (sent - shift)) / self._lr)


def _percent(error: Tensor, of: Tensor) -> float:
    return float(100 * error.square().sum().sqrt() / of.square().sum().sqrt())


def first_gradient(run: RecordedRun, victim: int, theta0: Tensor) -> Tensor | None:
    """The victim's first gradient [P], times a random matrix, from its first message.

    An adversary that knows the first model θ⁰ and τ removes the shift at once:

        diffusion            ψᶜ = θ⁰ − γ M∇J + c(θ⁰)    M∇J = (θ⁰ + c(θ⁰) − ψᶜ)/γ
        exact diffusion      φᶜ = θ⁰ − γ M∇J + random   M∇J = (θ⁰ − φᶜ)/γ, with noise
        gradient tracking    γᶜ = ∇J + c(∇J)            ∇J ← γᶜ − c(∇J), repeated: a contraction

    None if the algorithm has no protection vector.
    """
    rule = run.simulation.algorithm
    if not isinstance(rule, DualProtection):
        return None
    here = replace(run.simulation.here.at(0), apply=lambda step, rows: step.function(rows))

    def shift(row: Tensor) -> Tensor:
        return rule.protection.vector("guess", row[None], here)[0]

    def first_message(tag: str) -> Tensor:
        return run.transcript.of(tag)[0].rows[victim].double()

    if rule.theorem is None:
        sent = first_message("gamma")
        gradient = torch.zeros_like(sent)
        for _ in range(REPETITIONS):
            gradient = sent - shift(gradient)
        return gradient
    sent = first_message("psi" if rule.theorem == 1 else "phi")
    model = theta0.to(sent)
    known = shift(model) if rule.theorem == 1 else torch.zeros_like(sent)
    return (model + known - sent) / here.rate(rule.lr)
