"""A measure: what a curious neighbour reconstructs of another agent's samples from messages (dual protection, 5.2).

Agent 1 makes a model and a gradient of agent 2 from what is sent, and inverts them (DLG: L2 distance, L-BFGS):

    plain diffusion    w₂ = Σ aψ,                  g = (w₂ − ψ₂)/γ
    with protection    ŵ₂ = Σ aψᶜ − (τ/√L)‖w₁⁻‖1,  g = (ŵ₂ − ψ₂ᶜ + (τ/√L)‖w₁‖1)/γ   its own norms for those of agent 2
    exact diffusion    w₂ and M₂∇J₂, handed over: messages do not tell them, this is to test M alone
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.algorithms.dual_protection import DualProtection
from tacit.auditing.attacks.inversion import invert
from tacit.auditing.attacks.lbfgs import LBFGS
from tacit.auditing.attacks.observation import Observation
from tacit.auditing.attacks.reconstruction_attacks import DataSpec
from tacit.auditing.scoring.reconstruction import score_reconstruction
from tacit.auditing.scoring.truth import Truth
from tacit.config.build import build
from tacit.config.loading import with_keys
from tacit.config.sections import Config
from tacit.record.transcript import Transcript
from tacit.simulation import Simulation, repeatable
from tacit.tasks.flat import ModuleLoss
from tacit_papers.framework.artifact import MeasureContext, Values

CURIOUS, VICTIM = 0, 1


@dataclass(frozen=True)
class DiffusionInversion:
    """Similarity (SSIM) and MSE of what agent 1 reconstructs of agent 2's samples, soon after the start and later.

    `moments` are the names of times and the iterations from which on `samples` successive gradients are inverted, each
    of a batch of one. `gradient_off` is how far the gradient that is inverted is from the true one, in percent.
    """

    config: Config
    moments: tuple[tuple[str, int], ...]
    samples: int = 4
    restarts: int = 2
    iterations: int = 200

    def describe(self) -> dict[str, Any]:
        """Configuration, times, and how hard the attack tries."""
        return {
            "neighbour_inversion": self.config.as_dict(),
            "moments": [list(moment) for moment in self.moments],
            "samples": self.samples,
            "restarts": self.restarts,
            "iterations": self.iterations,
        }

    def __call__(self, seed: int, place: MeasureContext) -> Values:
        """Train until the last moment, then invert."""
        made = build(
            with_keys(self.config, "run", seed=seed, device=place.device),
            dataset=place.dataset(self.config),
        )
        transcript = Transcript()
        simulation = made.simulation(transcript)
        simulation.start()
        weights = torch.as_tensor(made.graph.W, dtype=made.task.dtype, device=simulation.device)[
            VICTIM
        ]
        wanted = {
            first + k: name for name, first in self.moments for k in range(self.samples)
        }  # iterations, from 1
        guesses: dict[str, list[Guess]] = {name: [] for name, _ in self.moments}
        mixed, before = None, None  # Σ aψ of the iteration before, and all models before that
        for n in range(1, max(wanted) + 1):
            transcript.messages.clear()
            models = simulation.state.theta.clone()
            with repeatable(simulation.device):
                truth = (
                    simulation.here.at(simulation.t).grad(models)[VICTIM] if n in wanted else None
                )
            simulation.step()
            sent = transcript.messages[0].rows
            if truth is not None and mixed is not None and before is not None:
                guess = _guess(simulation, sent, mixed, models, before)
                off = float(100 * (guess.gradient - truth).norm() / truth.norm())
                guesses[wanted[n]].append(Guess(guess.model, guess.gradient, n, off))
            mixed, before = weights @ sent, models
            place.said("iteration", n, max(wanted))
        values: Values = {}
        for name, found in guesses.items():
            values |= {
                f"{name}_{key}": value
                for key, value in self._inverted(simulation, found, seed).items()
            }
        return values

    def _inverted(self, simulation: Simulation, guesses: list[Guess], seed: int) -> Values:
        task, truth = simulation.task, Truth(simulation.task, seed)
        pool = truth.non_members(VICTIM)
        assert pool is not None
        assert isinstance(task.loss, ModuleLoss)
        told = DataSpec.of(task, VICTIM, (pool[0].to(simulation.device), pool[1]))
        observation = Observation.gradient(
            torch.stack([guess.model for guess in guesses]),
            torch.stack([guess.gradient for guess in guesses]),
        )
        found = invert(
            task.loss,
            observation,
            shape=told.shape,
            batch=told.batch,
            classes=told.classes,
            optimiser=LBFGS(iterations=self.iterations),
            restarts=self.restarts,
            seed=seed,
            box=told.box,
        )
        batches = [truth.batch(VICTIM, guess.iteration) for guess in guesses]
        true, labels = (torch.stack([batch[part] for batch in batches]) for part in (0, 1))
        guessed = found.inputs.reshape(true.shape).cpu()
        score = score_reconstruction(
            guessed,
            true,
            labels,
            *pool,
            seed,
            guess_labels=found.labels.reshape(labels.shape).cpu(),
        )
        similar, typical = score.attack.ssim, score.same_class.ssim
        assert similar is not None
        assert typical is not None
        assert score.label_accuracy is not None
        return {
            "ssim": float(similar.mean()),
            "mse": float(score.attack.mse.mean()),
            "same_class_ssim": float(typical.mean()),
            "labels_right": float(score.label_accuracy.mean()),
            "gradient_off": sum(guess.off for guess in guesses) / len(guesses),
            "truth": _picture(true[0]),
            "guess": _picture(guessed[0]),
        }


@dataclass(frozen=True, eq=False)
class Guess:
    """A model and a gradient of the victim, as the neighbour has them."""

    model: Tensor  # [P]
    gradient: Tensor  # [P]
    iteration: int = 0
    off: float = 0.0  # percent by which the gradient misses the true one


def _guess(
    simulation: Simulation, sent: Tensor, mixed: Tensor, models: Tensor, before: Tensor
) -> Guess:
    """What the paper's neighbour takes for w₂(n − 1) and ∇J₂, of this iteration's messages and the last one's."""
    rule, here = simulation.algorithm, simulation.here
    gamma = here.at(simulation.t - 1).rate(rule.lr)  # type: ignore[attr-defined]  # all rules here have one
    if not isinstance(rule, DualProtection):
        return Guess(mixed, (mixed - sent[VICTIM]) / gamma)
    if rule.theorem == 2:
        own = models[VICTIM]
        return Guess(own, (own - simulation.state.psi[VICTIM]) / gamma)
    now, last = (
        rule.protection.vector("guess", rows[CURIOUS : CURIOUS + 1], here)[0]
        for rows in (models, before)
    )
    model = mixed - last
    return Guess(model, (model - (sent[VICTIM] - now)) / gamma)


def _picture(image: Tensor) -> list[list[float]]:
    """The first channel of the first sample of a batch, to three digits."""
    return [[round(value, 3) for value in row] for row in image[0, 0].tolist()]
