"""How artifacts invert evidence, and the scores of the reconstructions."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from tacit.auditing.attacks.data_spec import DataSpec
from tacit.auditing.attacks.evidence import Evidence, RandomStep
from tacit.auditing.attacks.gradient_matching import (
    L2,
    CosineDistance,
    DeclaredDensity,
    MatchingLoss,
)
from tacit.auditing.attacks.inversion import invert
from tacit.auditing.attacks.lbfgs import LBFGS
from tacit.auditing.attacks.optimiser import Optimiser, SignedAdam
from tacit.auditing.scoring.images import match, reorder
from tacit.auditing.scoring.reconstruction import ReconstructionScore, score_reconstruction
from tacit.auditing.scoring.truth import Truth
from tacit.core.errors import Misuse
from tacit.privacy.matrix_step import MatrixStep
from tacit.tasks.flat import ModuleLoss
from tacit_papers.framework.cells import MeasureContext, Values, rounded
from tacit_papers.framework.stored_values import packed
from tacit_papers.measures.observations import (
    NO_IMAGES,
    VictimObservations,
    separate_observations,
)
from tacit_papers.measures.torch_lbfgs import TorchLBFGS

SHOWN = 2  # pictures of the first victim that are stored for the figure


@dataclass(frozen=True)
class SignAgreement(MatchingLoss):
    """1 − mean(sign v · tanh(Σ/(w·mean|Σ|))): agreement of signs, made smooth.

    For evidence that has only signs, such as a randomized response. Flipped signs cost the same for
    every guess on average, so the response only needs to keep more signs than it flips.
    """

    width: float = 0.1

    def distance(self, combination: Tensor, value: Tensor) -> Tensor:
        size = combination.abs().mean().clamp_min(1e-30)
        return 1 - (value.sign() * (combination / (self.width * size)).tanh()).mean()


@dataclass(frozen=True)
class InversionSearch:
    """How inputs are searched, and whether labels are known or optimised too.

    "DLG" as published: squared distance, torch's L-BFGS. "ours": the distance relative to the
    evidence, an L-BFGS with line search. "cosine": cosine distance and total variation, signed Adam
    (Geiping et al. 2020). "signs": agreement of signs, the same L-BFGS.
    """

    attack: Literal["DLG", "ours", "cosine", "signs", "matrix"] = "DLG"
    iterations: int = 300
    restarts: int = 4
    labels_known: bool = True
    total_variation: float = 0.0

    @property
    def matching_loss(self) -> MatchingLoss:
        if self.attack == "cosine":
            return CosineDistance(total_variation=self.total_variation)
        if self.attack == "signs":
            return SignAgreement(total_variation=self.total_variation)
        return L2(relative=self.attack == "ours", total_variation=self.total_variation)

    @property
    def optimiser(self) -> Optimiser:
        if self.attack == "cosine":
            return SignedAdam(self.iterations)
        return TorchLBFGS(self.iterations) if self.attack == "DLG" else LBFGS(self.iterations)


@dataclass(frozen=True)
class MatrixSearch(InversionSearch):
    """The search for inputs whose gradient, times a random matrix, is the evidence."""

    matrix: MatrixStep = field(default_factory=MatrixStep)
    width: float = 0.1

    @property
    def matching_loss(self) -> MatchingLoss:
        step = RandomStep("M", partial(self.matrix.log_density, floor=self.width))
        return DeclaredDensity(step, total_variation=self.total_variation)

    @property
    def optimiser(self) -> Optimiser:
        # Far from the inputs the likelihood is not convex, and a line search stops at once.
        return SignedAdam(self.iterations)


def invert_evidence(
    truth: Truth, evidence: Sequence[Evidence], search: InversionSearch, context: MeasureContext
) -> Values:
    """The scores of reconstructions from one piece of evidence per victim."""
    observations = separate_observations(truth.task, evidence, context)
    return invert_observations(truth, observations, search, context)


def invert_observations(
    truth: Truth,
    observations: Sequence[VictimObservations],
    search: InversionSearch,
    context: MeasureContext,
) -> Values:
    """SSIM and other scores over all samples."""
    found = [reconstruct(truth, one, search, context) for one in observations]
    scores = [one.score for one in found]
    similar = [value for score in scores for value in _similarity(score.attack.ssim)]
    overlap = [float(s.label_overlap.mean()) for s in scores if s.label_overlap is not None]
    return {
        "ssim": rounded(statistics.fmean(similar)),
        "ssim_per_victim": [rounded(value) for value in similar],
        "mse": rounded(statistics.fmean(float(score.attack.mse.mean()) for score in scores)),
        "labels_found": rounded(statistics.fmean(overlap)) if overlap else None,
        "ssim_of_class_mean": rounded(statistics.fmean(_similarity(scores[0].class_mean.ssim))),
        "rounding": rounded(max(one.rounding for one in observations)),
        "pictures": {
            "truth": grey_pictures(found[0].truth[0], found[0].spec),
            "guess": grey_pictures(found[0].guess[0], found[0].spec),
        },
    }


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """Samples [V, n, *shape] of V victims, and the guesses in the order that matches them best."""

    truth: Tensor
    guess: Tensor
    score: ReconstructionScore
    spec: DataSpec


def reconstruct(
    truth: Truth, observed: VictimObservations, search: InversionSearch, context: MeasureContext
) -> Reconstruction:
    loss, pool = truth.task.loss, truth.non_members(observed.victim)
    if not isinstance(loss, ModuleLoss) or pool is None:
        raise Misuse(*NO_IMAGES)
    spec = DataSpec.of(truth.task, observed.victim, pool)
    batches = [[truth.batch(u.client, u.when) for u in each] for each in observed.batches]
    # [V, T, b, ...]
    x, y = (
        torch.stack([torch.stack([batch[part] for batch in each]) for each in batches])
        for part in (0, 1)
    )
    known = y[:, 0] if observed.observation.same_data else y
    found = invert(
        loss,
        observed.observation,
        spec,
        labels=known if search.labels_known else "optimise",
        matching_loss=search.matching_loss,
        optimiser=search.optimiser,
        restarts=search.restarts,
        seed=truth.seed,
        progress=lambda i, of, _: context.progress(f"inverting the {observed.kind}", i, of),
    )
    guess, true = (rows.cpu().reshape(len(x), -1, *spec.shape) for rows in (found.inputs, x))
    labels = None if search.labels_known else found.labels.cpu().flatten(1)
    score = score_reconstruction(guess, true, y.flatten(1), *pool, truth.seed, guess_labels=labels)
    matched = reorder(guess, match(guess.double(), true.double()))
    return Reconstruction(true, matched, score, spec)


def _similarity(ssim: Tensor | None) -> list[float]:
    if ssim is None:
        raise Misuse("The inputs are too small for SSIM.", "Name a dataset of images.")
    return [float(value) for value in ssim]


def grey_pictures(images: Tensor, spec: DataSpec) -> list[str]:
    """The first pictures, averaged over the channels, as result.json keeps them."""
    assert spec.box is not None  # of data with public samples
    low, high = spec.box
    return packed((images[:SHOWN].mean(1) - low) / (high - low))
