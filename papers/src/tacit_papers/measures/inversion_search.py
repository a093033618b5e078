"""How evidence is inverted in an artifact, and the scores that come of it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tacit.auditing.attacks.evidence import Evidence
from tacit.auditing.attacks.inversion import invert
from tacit.auditing.attacks.lbfgs import LBFGS
from tacit.auditing.attacks.objectives import L2, CosineDistance, MatchingLoss
from tacit.auditing.attacks.optimiser import Optimiser
from tacit.auditing.attacks.reconstructions import Told
from tacit.auditing.attacks.signed_adam import SignedAdam
from tacit.auditing.scoring.matching import match
from tacit.auditing.scoring.reconstruction import ReconstructionScore, score_reconstruction
from tacit.auditing.scoring.truth import Truth
from tacit.core.errors import Misuse
from tacit.tasks import Task
from tacit.tasks.flat import ModuleLoss
from tacit_papers.framework.artifact import MeasureContext, Values
from tacit_papers.measures.observed import Observed, each_alone
from tacit_papers.measures.published_lbfgs import PublishedLBFGS
from tacit_papers.measures.sign_agreement import SignAgreement
from tacit_papers.measures.training import rounded

SHOWN = 2  # pictures of the first victim that are kept for the figure


@dataclass(frozen=True)
class Search:
    """How inputs are searched, and whether labels are told or searched along.

    DLG as published: the squared distance, torch's L-BFGS. "ours": the same relative to the evidence, with an L-BFGS
    that searches along its lines. "cosine": that distance and total variation, signed Adam (Geiping et al. 2020).
    "signs": how many signs agree, for evidence that has nothing else, with the same L-BFGS.
    """

    attack: Literal["DLG", "ours", "cosine", "signs"] = "DLG"
    iterations: int = 300
    restarts: int = 4
    labels_known: bool = True
    total_variation: float = 0.0

    @property
    def objective(self) -> MatchingLoss:
        """What is made small."""
        if self.attack == "cosine":
            return CosineDistance(self.total_variation)
        if self.attack == "signs":
            return SignAgreement(total_variation=self.total_variation)
        return L2(relative=self.attack == "ours", total_variation=self.total_variation)

    @property
    def optimiser(self) -> Optimiser:
        """How."""
        if self.attack == "cosine":
            return SignedAdam(self.iterations)
        return PublishedLBFGS(self.iterations) if self.attack == "DLG" else LBFGS(self.iterations)


def inverted(
    task: Task, seed: int, held: Sequence[Evidence], search: Search, place: MeasureContext
) -> Values:
    """SSIM of what is reconstructed, over all samples; evidence with equally many gradients is inverted together."""
    return found_in(task, seed, each_alone(task, held, place), search, place)


def found_in(
    task: Task, seed: int, observed: Sequence[Observed], search: Search, place: MeasureContext
) -> Values:
    """SSIM of what is reconstructed, over all samples."""
    parts = [_inverted(task, Truth(task, seed), one, search, seed, place) for one in observed]
    similar = [value for score, _ in parts for value in _similarity(score.attack.ssim)]
    first, pictures = parts[0]
    overlap = [
        float(score.label_overlap.mean()) for score, _ in parts if score.label_overlap is not None
    ]
    return {
        "ssim": rounded(statistics.fmean(similar)),
        "ssim_per_victim": [rounded(value) for value in similar],
        "mse": rounded(statistics.fmean(float(score.attack.mse.mean()) for score, _ in parts)),
        "labels_found": rounded(statistics.fmean(overlap)) if overlap else None,
        "ssim_of_class_mean": rounded(statistics.fmean(_similarity(first.class_mean.ssim))),
        "rounding": rounded(max(one.rounding for one in observed)),
        "pictures": pictures,
    }


def _inverted(
    task: Task, truth: Truth, observed: Observed, search: Search, seed: int, place: MeasureContext
) -> tuple[ReconstructionScore, dict[str, list[list[list[float]]]]]:
    loss, pool = task.loss, truth.outsiders(observed.victim)
    if not isinstance(loss, ModuleLoss) or pool is None:
        raise Misuse(
            "This task has no images to reconstruct.", "Name a dataset of images and a model."
        )
    told = Told.of(task, observed.victim, pool)
    x, y = (
        torch.stack(
            [
                torch.stack([truth.batch(u.client, u.when)[array] for u in each])
                for each in observed.batches
            ]
        )
        for array in (0, 1)
    )  # [V, T, b, ...]
    found = invert(
        loss,
        observed.observation,
        shape=told.shape,
        batch=told.batch,
        classes=told.classes,
        labels=(y[:, 0] if observed.observation.same_data else y)
        if search.labels_known
        else "optimise",
        objective=search.objective,
        optimiser=search.optimiser,
        restarts=search.restarts,
        seed=seed,
        box=told.box,
        progress=lambda i, of, _: place.said(f"inverting the {observed.kind}", i, of),
    )
    guess, true = (rows.cpu().reshape(len(x), -1, *told.shape) for rows in (found.inputs, x))
    score = score_reconstruction(
        guess,
        true,
        y.flatten(1),
        *pool,
        seed,
        guess_labels=None if search.labels_known else found.labels.cpu().flatten(1),
    )
    shown = guess[0][match(guess[:1], true[:1])[0, :SHOWN]]
    return score, {"truth": _plain(true[0, :SHOWN], told.box), "guess": _plain(shown, told.box)}


def _similarity(ssim: Tensor | None) -> list[float]:
    if ssim is None:
        raise Misuse("The inputs are too small for SSIM.", "Name a dataset of images.")
    return [float(value) for value in ssim]


def _plain(images: Tensor, box: tuple[float, float]) -> list[list[list[float]]]:
    """Pictures [H][W] of numbers from 0 to 1, colours averaged."""
    grey = ((images.mean(1) - box[0]) / (box[1] - box[0])).clamp(0, 1)
    return [[[round(value, 2) for value in row] for row in image] for image in grey.tolist()]
