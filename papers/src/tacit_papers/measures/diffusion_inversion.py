"""Measure of what a curious neighbour reconstructs from diffusion messages (dual protection, 5.2).

Agent 1 estimates a model and a gradient of agent 2 and inverts them (DLG: L2 distance, L-BFGS):

    plain diffusion    w₂ = Σ aψ,                  g = (w₂ − ψ₂)/γ
    with protection    ŵ₂ = Σ aψᶜ − (τ/√L)‖w₁⁻‖1,  g = (ŵ₂ − ψ₂ᶜ + (τ/√L)‖w₁‖1)/γ
                       with its own norms instead of those of agent 2
    exact diffusion    w₂ and M₂∇J₂ are given: messages do not reveal them, this tests M alone
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.algorithms.dual_protection import DualProtection
from tacit.auditing.attacks.data_spec import DataSpec
from tacit.auditing.attacks.inversion import invert
from tacit.auditing.attacks.lbfgs import LBFGS
from tacit.auditing.attacks.observation import Observation
from tacit.auditing.scoring.reconstruction import score_reconstruction
from tacit.auditing.scoring.truth import Truth
from tacit.config.sections import Config
from tacit.engines.simulation import Simulation
from tacit.record.transcript import Transcript
from tacit.tasks.flat import ModuleLoss
from tacit_papers.framework.cells import FieldDescription, MeasureContext, Values
from tacit_papers.measures.training import next_gradients

CURIOUS, VICTIM = 0, 1
# Model [P], gradient [P], iteration, error of the gradient in percent.
Guess = tuple[Tensor, Tensor, int, float]


@dataclass(frozen=True)
class DiffusionInversion(FieldDescription):
    """SSIM and MSE of agent 1's reconstructions of agent 2's samples.

    `moments` are names and first iterations, from which `samples` successive gradients are
    inverted, each of a batch of one. `gradient_off` is the error of the gradient in percent.
    """

    label = ("neighbour_inversion", "config")
    config: Config
    moments: tuple[tuple[str, int], ...]
    samples: int = 4
    restarts: int = 2
    iterations: int = 200

    def __call__(self, seed: int, context: MeasureContext) -> Values:
        experiment, transcript = context.experiment(self.config, seed), Transcript()
        simulation = experiment.simulation(transcript)
        simulation.start()
        dtype, device = experiment.task.dtype, simulation.device
        weights = torch.as_tensor(experiment.graph.W, dtype=dtype, device=device)[VICTIM]
        # Names by iteration, counted from 1.
        attacked = {first + k: name for name, first in self.moments for k in range(self.samples)}
        guesses: dict[str, list[Guess]] = {name: [] for name, _ in self.moments}
        # Σ aψ of the iteration before, and all models before that.
        mixed, before = None, None
        for n in range(1, max(attacked) + 1):
            transcript.messages.clear()
            models = simulation.state.theta.clone()
            truth = next_gradients(simulation)[VICTIM] if n in attacked else None
            simulation.step()
            sent = transcript.messages[0].rows
            if truth is not None and mixed is not None and before is not None:
                model, gradient = _estimate(simulation, sent, mixed, models, before)
                off = float(100 * (gradient - truth).norm() / truth.norm())
                guesses[attacked[n]].append((model, gradient, n, off))
            mixed, before = weights @ sent, models
            context.progress("iteration", n, max(attacked))
        return {
            f"{name}_{key}": value
            for name, found in guesses.items()
            for key, value in self._invert(simulation, found, seed).items()
        }

    def _invert(self, simulation: Simulation, guesses: list[Guess], seed: int) -> Values:
        task, truth = simulation.task, Truth(simulation.task, seed)
        pool = truth.non_members(VICTIM)
        assert pool is not None
        assert isinstance(task.loss, ModuleLoss)
        spec = DataSpec.of(task, VICTIM, (pool[0].to(simulation.device), pool[1]))
        models, gradients, iterations, off = zip(*guesses, strict=True)
        found = invert(
            task.loss,
            Observation.gradient(torch.stack(models), torch.stack(gradients)),
            spec,
            optimiser=LBFGS(iterations=self.iterations),
            restarts=self.restarts,
            seed=seed,
        )
        batches = [truth.batch(VICTIM, iteration) for iteration in iterations]
        true, labels = (torch.stack([batch[part] for batch in batches]) for part in (0, 1))
        guessed = found.inputs.reshape(true.shape).cpu()
        read = found.labels.reshape(labels.shape).cpu()
        score = score_reconstruction(guessed, true, labels, *pool, seed, guess_labels=read)
        similar, typical = score.attack.ssim, score.same_class.ssim
        assert similar is not None
        assert typical is not None
        assert score.label_accuracy is not None
        return {
            "ssim": float(similar.mean()),
            "mse": float(score.attack.mse.mean()),
            "same_class_ssim": float(typical.mean()),
            "labels_right": float(score.label_accuracy.mean()),
            "gradient_off": sum(off) / len(off),
            "truth": _picture(true[0]),
            "guess": _picture(guessed[0]),
        }


def _estimate(
    simulation: Simulation, sent: Tensor, mixed: Tensor, models: Tensor, before: Tensor
) -> tuple[Tensor, Tensor]:
    """w₂(n − 1) and ∇J₂ by the paper's estimates, from messages of two iterations."""
    rule, here = simulation.algorithm, simulation.here
    gamma = here.at(simulation.t - 1).rate(rule.lr)  # type: ignore[attr-defined]  # all rules here have one
    if not isinstance(rule, DualProtection):
        return mixed, (mixed - sent[VICTIM]) / gamma
    if rule.theorem == 2:
        own = models[VICTIM]
        return own, (own - simulation.state.psi[VICTIM]) / gamma
    now, last = (
        rule.protection.vector("guess", rows[CURIOUS : CURIOUS + 1], here)[0]
        for rows in (models, before)
    )
    model = mixed - last
    return model, (model - (sent[VICTIM] - now)) / gamma


def _picture(image: Tensor) -> list[list[float]]:
    """The first channel of the first sample of a batch, to three digits."""
    return [[round(value, 3) for value in row] for row in image[0, 0].tolist()]
