"""Measure of what a neighbour computes of a first gradient, and of the pictures from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import grad

from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.evidence import evidence
from tacit.auditing.attacks.observation import Observation
from tacit.auditing.audit import run_audit
from tacit.auditing.options import AuditOptions
from tacit.auditing.scoring.truth import Truth
from tacit.auditing.symbolic.leakage import Leakage
from tacit.config.sections import Config
from tacit.core.devices import float32_products
from tacit.core.errors import Misuse
from tacit.record.transcript import Keep, Transcript
from tacit.record.unknowns import Unknown
from tacit.tasks.flat import ModuleLoss
from tacit_papers.framework.cells import MeasureContext, Values, describe_config
from tacit_papers.framework.stored_values import packed
from tacit_papers.measures.inversion_search import InversionSearch, reconstruct
from tacit_papers.measures.observations import NO_IMAGES, VictimObservations
from tacit_papers.measures.training import Training

ITERATIONS = 3  # audited; a variate reveals the gradient before it, so the last is not known yet
SHOWN = 4  # pictures


@dataclass(frozen=True)
class ControlVariateLeak:
    """Accuracy of a training, and a neighbour's pictures from an audit of its first iterations.

    The audit takes small batches. Pictures are inverted from the best that a neighbour has of the
    first gradient: the gradient where it is known exactly, else the result of response and codec.
    """

    training: Config
    audited: Config
    victims: int
    restarts: int
    iterations: int  # of the inversion

    def describe(self) -> dict[str, Any]:
        effort = {"victims": self.victims, "restarts": self.restarts, "iterations": self.iterations}
        audited = describe_config(self.audited)
        return {**Training(self.training).describe(), "audited": audited, **effort}

    def __call__(self, seed: int, context: MeasureContext) -> Values:
        return Training(self.training)(seed, context) | self.leak(seed, context)

    @float32_products()
    def leak(self, seed: int, context: MeasureContext) -> Values:
        """The audit and the pictures."""
        experiment = context.experiment(self.audited, seed)
        setting = experiment.setting
        edges = setting.graph.edges.tolist()
        curious = min(j for i, j in edges if i == 0)
        neighbour = Adversary.curious(curious)
        near = sorted(j for i, j in edges if i == curious)
        transcript = Transcript(Keep(insides=(curious,)))
        simulation = experiment.simulation(transcript)
        simulation.start()
        for _ in range(ITERATIONS):
            simulation.step()
        options = AuditOptions(
            victims=near[: self.victims],
            iterations=ITERATIONS,
            attacks=False,
            heat_map=False,
            transcript=transcript,
        )
        (view,) = run_audit(setting, [neighbour], options).results
        statuses = [
            status for leakage in view.leakage for status in leakage.of("gradient").statuses[:-1]
        ]
        guarantee = view.ledgers[0].upper
        return {
            "exact": statuses.count("exact") / len(statuses),
            "guarantee": str(guarantee),
            "why": guarantee.why,
            **self._invert(view.leakage, transcript, Truth(setting.task, seed), context),
        }

    def _invert(
        self, leakages: list[Leakage], transcript: Transcript, truth: Truth, context: MeasureContext
    ) -> Values:
        """Pictures from the first gradients of all victims, with labels known, and their scores."""
        loss, victims = truth.task.loss, [leakage.victim for leakage in leakages]
        if not isinstance(loss, ModuleLoss):
            raise Misuse(*NO_IMAGES)
        device, loss = context.device, loss.to(context.device)
        best = [_best(leakage, transcript) for leakage in leakages]
        points, seen = (
            torch.stack(rows).to(device, loss.flat.dtype) for rows in zip(*best, strict=True)
        )
        true = torch.stack(
            [
                grad(loss)(theta, *(array.to(device) for array in truth.batch(victim, 1)))
                for theta, victim in zip(points, victims, strict=True)
            ]
        )
        batches: list[tuple[Unknown, ...]] = [(Unknown("gradient", 1, v),) for v in victims]
        observation = Observation.gradient(points, seen)
        observed = VictimObservations("gradient", victims[0], observation, batches, 0.0)
        effort = (self.iterations, self.restarts)
        search = InversionSearch("cosine", *effort, labels_known=True, total_variation=1e-2)
        found = reconstruct(truth, observed, search, context)
        score = found.score
        scores = {"": score.attack, "mean_": score.prior_mean, "class_": score.class_mean}
        return {
            "cosine": float(torch.cosine_similarity(seen, true, dim=1).mean()),
            "relative_error": float(((seen - true).norm(dim=1) / true.norm(dim=1)).max()),
            **{
                f"{prefix}{name}": None if value is None else float(value.mean())
                for prefix, one in scores.items()
                for name, value in (("mse", one.mse), ("ssim", one.ssim))
            },
            "reading": score.reading,
            "pictures": {
                "truth": packed(found.truth.flatten(0, 1)[:SHOWN, 0]),
                "guess": packed(found.guess.flatten(0, 1)[:SHOWN, 0]),
            },
        }


def _best(leakage: Leakage, transcript: Transcript) -> tuple[Tensor, Tensor]:
    """The model [P] of the first gradient, and the gradient [P], or else a result of it."""
    model = evidence(leakage, "model", 0, transcript)
    held = evidence(leakage, "gradient", 0, transcript)
    if held is None:
        # The first image is the response before the codec, if it is known.
        exact = leakage.of("image").indices("exact")
        first = next((index for index in exact if leakage.images[index].when == 1), None)
        held = None if first is None else evidence(leakage, "image", first, transcript)
    if model is None or held is None:
        raise Misuse("The neighbour knows nothing to invert.", "Choose another algorithm.")
    return model.values, held.values
