"""Scores of reconstructed samples, next to those of baselines that use no data of the victim.

"PSNR 14 dB" alone says nothing: the mean of all digits scores 12 dB against a digit. So the guesses
of `baselines` go through the same matching and the same measures: the prior mean, a random sample
of the same class (averaged over several draws), and the class mean, without which an attack that
found only the classes would look better than it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.auditing.scoring.baselines import public_pool
from tacit.auditing.scoring.images import (
    check_batches,
    check_range,
    match,
    mse,
    psnr,
    reorder,
    ssim,
    window_for,
)
from tacit.core.errors import Misuse
from tacit.core.randomness import derive_key

DRAWS = 16  # random samples of the same class to average over
MAX_PSNR = 120.0  # dB: an error of a millionth of the range; beyond it PSNR measures rounding
LEGIBLE = 0.1  # SSIM above every baseline
MARGIN = 0.9  # share of a baseline's MSE from which a guess is no better
RECOVERED = 0.1  # share of the best baseline's MSE up to which a sample is recovered
LEVELS = (
    "no better than the prior mean",
    "no better than knowing the class",
    "closer than every baseline",
    "recovered in part",
    "recovered",
)


@dataclass(frozen=True, eq=False)
class ImageScores:
    """Scores per victim [V], each the mean over its batch."""

    mse: Tensor
    psnr: Tensor  # each sample counts at most 120 dB
    ssim: Tensor | None  # None if samples are not images
    sample_mse: Tensor  # [V, b]: of each true sample and the guess matched to it

    def as_dict(self) -> dict[str, float | list[float] | None]:
        """JSON values: means over victims, and the values per victim."""
        out: dict[str, float | list[float] | None] = {}
        for name, value in (("mse", self.mse), ("psnr", self.psnr), ("ssim", self.ssim)):
            out[name] = None if value is None else float(value.mean())
            out[f"{name}_per_victim"] = None if value is None else value.tolist()
        return out


@dataclass(frozen=True, eq=False)
class ReconstructionScore:
    """The scores of an attack and of the baselines, and how to read them together."""

    attack: ImageScores
    prior_mean: ImageScores
    same_class: ImageScores
    class_mean: ImageScores
    data_range: float
    label_accuracy: Tensor | None  # [V]: share of matched samples with the right label
    # [V]: share of labels found in any order, Σ over classes of min(guessed, true)/b
    label_overlap: Tensor | None
    # True samples that are also in the public pool; with more than a few, baselines mean nothing.
    in_pool: int

    @property
    def levels(self) -> list[str]:
        """The level of each victim, from its MSE m and the smallest MSE B of the baselines.

        - no better than the prior mean: m ≥ 0.9 · MSE of the prior mean
        - no better than knowing the class: otherwise, m ≥ 0.9 B
        - closer than every baseline: otherwise, m > 0.1 B
        - recovered in part: any of these, but some sample of the batch has m ≤ 0.1 B
        - recovered: m ≤ 0.1 B, that is 10 dB closer than any baseline

        A noisy but legible image has a large MSE, so an SSIM of 0.1 above every baseline's is
        "closer", too.
        """
        others = (self.prior_mean, self.same_class, self.class_mean)
        m = self.attack.mse
        best = torch.stack([scores.mse for scores in others]).amin(0)
        best_by_sample = torch.stack([scores.sample_mse for scores in others]).amin(0)
        level = torch.full(m.shape, 2)
        level[m >= MARGIN * best] = 1
        level[m >= MARGIN * self.prior_mean.mse] = 0
        if self.attack.ssim is not None:
            similar = [scores.ssim for scores in others if scores.ssim is not None]
            legible = self.attack.ssim > torch.stack(similar).amax(0) + LEGIBLE
            level[(level < 2) & legible] = 2
        level[(self.attack.sample_mse <= RECOVERED * best_by_sample).any(1)] = 3
        level[m <= RECOVERED * best] = 4
        return [LEVELS[k] for k in level.tolist()]

    @property
    def reading(self) -> str:
        """How many victims reach each level (see `levels`), the worst for the victims first.

        If all have one level, only that, e.g. "no better than the prior mean". It does not average
        over victims, so many failures do not hide one success. It is about this attack; another may
        succeed.
        """
        levels = self.levels
        counts = [(level, levels.count(level)) for level in reversed(LEVELS) if level in levels]
        if len(counts) == 1:
            return counts[0][0]
        return "; ".join(f"{level} for {count} of {len(levels)} victims" for level, count in counts)

    def as_dict(self) -> dict[str, object]:
        accuracy, overlap = self.label_accuracy, self.label_overlap
        return {
            "attack": self.attack.as_dict(),
            "prior_mean": self.prior_mean.as_dict(),
            "same_class": self.same_class.as_dict(),
            "class_mean": self.class_mean.as_dict(),
            "data_range": self.data_range,
            "label_accuracy": None if accuracy is None else float(accuracy.mean()),
            "label_overlap": None if overlap is None else float(overlap.mean()),
            "in_pool": self.in_pool,
            "levels": self.levels,
            "reading": self.reading,
        }


def score_reconstruction(
    guess: Tensor,
    truth: Tensor,
    truth_labels: Tensor | None,
    pool_x: Tensor,
    pool_y: Tensor | None,
    seed: int,
    *,
    guess_labels: Tensor | None = None,
) -> ReconstructionScore:
    """Score guesses for V victims against the truth and the baselines.

    Args:
        guess: Guessed samples, [V, b, *shape].
        truth: True samples, [V, b, *shape].
        truth_labels: Classes of the true samples, [V, b]; None for regression.
        pool_x: Public samples of the same kind, [n, *shape]; none of the victims'.
        pool_y: Classes of the public samples, [n].
        seed: Draws the samples of the same class.
        guess_labels: Guessed classes, [V, b].
    """
    check_batches(guess, truth)
    guess, truth = (x.detach().double().cpu() for x in (guess, truth))
    pool, labels = public_pool(truth, truth_labels, pool_x, pool_y)
    if guess_labels is not None and (truth_labels is None or guess_labels.shape != labels.shape):
        raise Misuse(
            f"guess_labels has shape {tuple(guess_labels.shape)}; true labels: "
            f"{'none' if truth_labels is None else tuple(labels.shape)}.",
            "Give one label per guess, [victims, batch], and the true ones.",
        )
    width = float(pool.x.max() - pool.x.min())
    check_range(width)

    order = match(guess, truth)
    generator = torch.Generator().manual_seed(derive_key(seed, "same class") >> 1)
    drawn = [_scored(pool.same_class(labels, generator), truth, width) for _ in range(DRAWS)]
    accuracy = overlap = None
    if guess_labels is not None:
        guessed = guess_labels.cpu()
        accuracy = (reorder(guessed, order) == labels).double().mean(1)
        overlap = _overlap(guessed, labels)
    return ReconstructionScore(
        attack=_scored(guess, truth, width, order),
        prior_mean=_scored(pool.prior_mean(labels), truth, width),
        same_class=_mean_scores(drawn),
        class_mean=_scored(pool.class_means(labels), truth, width),
        data_range=width,
        label_accuracy=accuracy,
        label_overlap=overlap,
        in_pool=pool.count(truth),
    )


def _scored(
    guess: Tensor, truth: Tensor, data_range: float, order: Tensor | None = None
) -> ImageScores:
    """The scores of a guess in its best order; baselines get the best order as well."""
    order = match(guess, truth) if order is None else order
    guessed, true = reorder(guess, order).flatten(0, 1), truth.flatten(0, 1)
    window = window_for(truth.shape[2:])

    def by_victim(x: Tensor) -> Tensor:
        return x.view(truth.shape[:2]).mean(1)

    error = mse(guessed, true)
    return ImageScores(
        mse=by_victim(error),
        psnr=by_victim(psnr(guessed, true, data_range).clamp(max=MAX_PSNR)),
        ssim=None if window is None else by_victim(ssim(guessed, true, data_range, window)),
        sample_mse=error.view(truth.shape[:2]),
    )


def _mean_scores(drawn: Sequence[ImageScores]) -> ImageScores:
    def mean(name: str) -> Tensor:
        return torch.stack([getattr(scores, name) for scores in drawn]).mean(0)

    similar = None if drawn[0].ssim is None else mean("ssim")
    return ImageScores(mean("mse"), mean("psnr"), similar, mean("sample_mse"))


def _overlap(guessed: Tensor, labels: Tensor) -> Tensor:
    classes = torch.unique(torch.cat([guessed.flatten(), labels.flatten()]))
    found, true = ((which[..., None] == classes).sum(1) for which in (guessed, labels))
    return torch.minimum(found, true).sum(1) / labels.shape[1]
