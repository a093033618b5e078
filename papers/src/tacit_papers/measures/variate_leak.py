"""What a neighbour computes of a client's first gradient, and the pictures it makes of that."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tacit.auditing.attacks.matching_losses import CosineDistance
from tacit.auditing.attacks.reconstruction_attacks import DataSpec
from tacit.auditing.symbolic.leakage import Leakage
from tacit.config.loading import with_keys
from torch import Tensor
from torch.func import grad

import tacit
from tacit.auditing.attacks.evidence import evidence
from tacit.auditing.attacks.inversion import invert
from tacit.auditing.attacks.observation import Observation
from tacit.auditing.attacks.signed_adam import SignedAdam
from tacit.auditing.audit import default_adversaries, run_audit
from tacit.auditing.scoring.matching import match, reorder
from tacit.auditing.scoring.reconstruction import score_reconstruction
from tacit.auditing.scoring.truth import Truth
from tacit.config.build import build
from tacit.config.sections import Config
from tacit.core.errors import Misuse
from tacit.core.precision import consistent_tf32
from tacit.experiment.auditing import AuditSubject
from tacit.record.transcript import Keep, Transcript
from tacit.tasks.flat import ModuleLoss
from tacit_papers.framework.artifact import MeasureContext, Values
from tacit_papers.measures.training import Training

ITERATIONS = 3  # that are audited; variates that are sent tell of the gradient before, so the last is not known yet
SHOWN = 4  # pictures


@dataclass(frozen=True)
class ControlVariateLeak:
    """Accuracy of a training, and of an audit of its first iterations with small batches: what is known exactly, and
    how near the pictures come that are inverted from the best that a neighbour has of the first gradient.

    That is the gradient where it is known exactly, and else what the response and the codec made of it.
    """

    training: Config
    audited: Config
    victims: int
    restarts: int
    iterations: int  # of the inversion

    def describe(self) -> dict[str, Any]:
        """Both configurations, and how hard the attack tries."""
        effort = {"victims": self.victims, "restarts": self.restarts, "iterations": self.iterations}
        return {**Training(self.training).describe(), "audited": self.audited.as_dict(), **effort}

    def __call__(self, seed: int, place: MeasureContext) -> Values:
        """Train, audit, invert, score."""
        values = Training(self.training)(seed, place)
        return values | self.leak(seed, place)

    @consistent_tf32()
    def leak(self, seed: int, place: MeasureContext) -> Values:
        """The audit's part."""
        config = with_keys(self.audited, "run", seed=seed, device=place.device)
        setting = AuditSubject(build(config, dataset=place.dataset(config))).setting
        neighbour = default_adversaries(setting, 0)[0]
        (curious,) = neighbour.corrupt
        near = [target for source, target in setting.graph.edges.tolist() if source == curious]
        victims = sorted(near)[: self.victims]
        heard = Transcript(Keep(insides=(curious,)))
        simulation = tacit.Simulation(tacit.Setting(setting.algorithm, setting.task, setting.graph, seed=seed, device=place.device), transcript=heard)
        simulation.start()
        for _ in range(ITERATIONS):
            simulation.step()
        audit = run_audit(
            setting,
            [neighbour],
            victims=victims,
            iterations=ITERATIONS,
            attacks=False,
            heat_map=False,
            transcript=heard,
        )
        (view,) = audit.results
        statuses = [found.of("gradient").statuses[:-1] for found in view.leakage]
        known = [status == "exact" for each in statuses for status in each]
        return {
            "exact": sum(known) / len(known),
            "guarantee": str(view.ledgers[0].upper),
            "why": view.ledgers[0].upper.why,
            **self._inverted(view.leakage, heard, Truth(setting.task, seed), seed, place),
        }

    def _inverted(
        self,
        found: list[Leakage],
        heard: Transcript,
        truth: Truth,
        seed: int,
        place: MeasureContext,
    ) -> Values:
        """Pictures from the first gradient of every victim, all in one batch, with labels known; and their scores."""
        loss, pool = truth.task.loss, truth.non_members(found[0].victim)
        if not isinstance(loss, ModuleLoss) or pool is None:
            raise Misuse(
                "Pictures are inverted of a task without any.", "Give one with [data] of images."
            )
        loss, told = loss.to(place.device), DataSpec.of(truth.task, found[0].victim, pool)
        held = [_best(one, heard) for one in found]
        points, seen = (
            torch.stack(rows).to(place.device, loss.flat.dtype) for rows in zip(*held, strict=True)
        )
        batches = [truth.batch(one.victim, 1) for one in found]
        x, y = (torch.stack(arrays) for arrays in zip(*batches, strict=True))
        true = [
            grad(loss)(theta, a.to(place.device), b.to(place.device))
            for theta, a, b in zip(points, x, y, strict=True)
        ]
        guess = invert(
            loss,
            Observation.gradient(points, seen),
            shape=told.shape,
            batch=told.batch,
            classes=told.classes,
            labels=y.to(place.device),
            objective=CosineDistance(total_variation=1e-2),
            optimiser=SignedAdam(iterations=self.iterations),
            restarts=self.restarts,
            seed=seed,
            box=told.box,
            progress=lambda i, of, _: place.said("inverting", i, of),
        ).inputs.cpu()
        score = score_reconstruction(guess, x, y, *pool, seed)
        cosine = torch.cosine_similarity(seen, torch.stack(true), dim=1)
        error = (seen - torch.stack(true)).norm(dim=1) / torch.stack(true).norm(dim=1)
        return {
            "cosine": float(cosine.mean()),
            "relative_error": float(error.max()),
            **{
                f"{which}{name}": None if value is None else float(value.mean())
                for which, scores in (
                    ("", score.attack),
                    ("mean_", score.prior_mean),
                    ("class_", score.class_mean),
                )
                for name, value in (("mse", scores.mse), ("ssim", scores.ssim))
            },
            "reading": score.reading,
            "pictures": {
                "shape": list(told.shape),
                "truth": _packed(x.flatten(0, 1)),
                "guess": _packed(reorder(guess, match(guess.double(), x.double())).flatten(0, 1)),
            },
        }


def _best(found: Leakage, heard: Transcript) -> tuple[Tensor, Tensor]:
    """The model of a victim's first gradient, and that gradient, or else what became of it: both [P]."""
    model = evidence(found, "model", 0, heard)
    held = evidence(found, "gradient", 0, heard)
    if held is None:  # the response before the codec, if it is known; images come in that order
        first = [
            place for place in found.of("image").indices("exact") if found.images[place].when == 1
        ]
        held = evidence(found, "image", first[0], heard) if first else None
    if model is None or held is None:
        raise Misuse("The neighbour knows nothing to invert.", "Choose another algorithm.")
    return model.values, held.values


def _packed(pictures: Tensor) -> list[str]:
    """The first pictures as bytes in base64, from black to white."""
    shades = (pictures[:SHOWN].clamp(0, 1) * 255).round().to(torch.uint8)
    return [base64.b64encode(picture.numpy().tobytes()).decode() for picture in shades]


def unpacked(text: str, shape: list[int]) -> NDArray[np.uint8]:
    """The first channel of one of them again, [height, width]."""
    _, height, width = shape
    whole: NDArray[np.uint8] = np.frombuffer(base64.b64decode(text), np.uint8)
    return whole[: height * width].reshape(height, width)
