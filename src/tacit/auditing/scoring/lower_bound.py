"""A statistical lower bound on ε from the scores of an attack.

With an (ε, δ)-private release no attack distinguishes members from others with TPR > e^ε FPR + δ,
nor with TNR > e^ε FNR + δ (Kairouz, Oh & Viswanath 2015). So TPR ≥ t and FPR ≤ f, each with
probability 1 − α/2 by Clopper–Pearson, imply

    ε ≥ max{ log((t − δ)/f), log((1 − f − δ)/(1 − t)) }   with confidence 1 − α

A threshold chosen and evaluated on the same scores would look better than it is. So it is chosen on
one half of the scores and evaluated on the other; the split depends on their number only. The
scores must come from independent trials. Members and non-members of one trained model are not
strictly independent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.auditing.scoring.roc import Array, as_scores, clopper_pearson
from tacit.core.checks import check_number

MAX_THRESHOLDS = 1000  # tried on the first half


@dataclass(frozen=True)
class LowerBound:
    """With the given confidence the attack shows that ε is at least `epsilon` at `delta`.

    Scores of at least `threshold` are classified as members. `tpr` and `fpr` are Clopper–Pearson
    intervals, each with that confidence, from the `members` and `nonmembers` on which the threshold
    was evaluated.
    """

    epsilon: float
    delta: float
    threshold: float
    tpr: tuple[float, float]
    fpr: tuple[float, float]
    confidence: float
    members: int
    nonmembers: int

    def __str__(self) -> str:
        return (
            f"the attack shows epsilon >= {self.epsilon:.4g} at delta = {self.delta:.3g} with "
            f"{self.confidence:.4g} confidence (TPR >= {self.tpr[0]:.4g} from {self.members} "
            f"members, FPR <= {self.fpr[1]:.4g} from {self.nonmembers} non-members)"
        )


def lower_bound(
    member_scores: Any, nonmember_scores: Any, delta: float, confidence: float = 0.95
) -> LowerBound:
    """A lower bound on ε at `delta` from scores [n] of members and [m] of non-members.

    Higher scores must mean likelier members.
    """
    members = as_scores("member", member_scores)
    others = as_scores("non-member", nonmember_scores)
    check_number("delta", delta, at_least=0, below=1, example=1e-5)
    check_number("confidence", confidence, above=0, below=1, example=0.95)
    tail = (1 - confidence) / 2
    choosing_in, testing_in = _halves(members)
    choosing_out, testing_out = _halves(others)
    tried = _thresholds(choosing_in, choosing_out)
    # One of many thresholds will look good by chance. A stricter tail prefers one that does not.
    strict = tail / len(tried)
    tpr, _ = clopper_pearson(_above(choosing_in, tried), len(choosing_in), strict)
    _, fpr = clopper_pearson(_above(choosing_out, tried), len(choosing_out), strict)
    threshold = float(tried[np.argmax(_implied_epsilon(tpr, fpr, delta))])
    at = np.array([threshold])
    tpr_low, tpr_high = clopper_pearson(_above(testing_in, at), len(testing_in), tail)
    fpr_low, fpr_high = clopper_pearson(_above(testing_out, at), len(testing_out), tail)
    return LowerBound(
        epsilon=max(float(_implied_epsilon(tpr_low, fpr_high, delta)[0]), 0.0),
        delta=float(delta),
        threshold=threshold,
        tpr=(float(tpr_low[0]), float(tpr_high[0])),
        fpr=(float(fpr_low[0]), float(fpr_high[0])),
        confidence=float(confidence),
        members=len(testing_in),
        nonmembers=len(testing_out),
    )


def _implied_epsilon(tpr: Array, fpr: Array, delta: float) -> Array:
    """The ε that TPR ≥ tpr and FPR ≤ fpr imply, −∞ if none."""
    with np.errstate(divide="ignore"):
        caught = np.log(np.maximum(tpr - delta, 0.0)) - np.log(fpr)
        cleared = np.log(np.maximum(1 - fpr - delta, 0.0)) - np.log1p(-tpr)
    return np.asarray(np.maximum(caught, cleared))


def _above(scores: Array, thresholds: Array) -> NDArray[np.int64]:
    """How many of the sorted scores are at least each threshold."""
    return np.asarray(len(scores) - np.searchsorted(scores, thresholds, side="left"))


def _thresholds(inside: Array, outside: Array) -> Array:
    """Scores to try as thresholds: all, or a selection with ranks that are dense at both ends."""
    every = np.unique(np.concatenate([inside, outside]))
    if len(every) <= MAX_THRESHOLDS:
        return every
    ranks = np.unique(np.geomspace(1, len(every), MAX_THRESHOLDS // 2).astype(np.int64)) - 1
    return every[np.union1d(ranks, len(every) - 1 - ranks)]


def _halves(scores: Array) -> tuple[Array, Array]:
    """Two sorted halves, split by a fixed shuffle, so that ordered scores are split fairly."""
    order = np.random.default_rng(len(scores)).permutation(len(scores))
    half = len(scores) // 2
    return np.sort(scores[order[:half]]), np.sort(scores[order[half:]])
