"""A statistical lower bound on ε from the scores of an attack: what the attack shows, with confidence.

An (ε, δ)-private release lets no attack tell members from others with TPR > e^ε FPR + δ, nor with TNR > e^ε FNR + δ
(Kairouz, Oh & Viswanath 2015). So from TPR ≥ t and FPR ≤ f, each true with probability 1 − α/2 by Clopper–Pearson,

    ε ≥ max{ log((t − δ)/f), log((1 − f − δ)/(1 − t)) }   with confidence 1 − α

A threshold that was chosen on the scores it is judged by would look better than it is. Here it is chosen on one half of
the scores and judged on the other (a split that depends on how many there are, not on what they are). The scores must
come from independent trials: members and non-members of one trained model are not, strictly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tacit.core.arguments import is_number
from tacit.core.errors import Misuse

Array = NDArray[np.float64]
CANDIDATES = 1000  # thresholds tried on the first half


@dataclass(frozen=True)
class LowerBound:
    """With the given confidence the attack shows that ε is at least `epsilon` at `delta`.

    A score of at least `threshold` is called a member. `tpr` and `fpr` are Clopper–Pearson intervals, each
    of that confidence, from the `members` and `nonmembers` on which the threshold was judged.
    """

    epsilon: float
    delta: float
    threshold: float
    tpr: tuple[float, float]
    fpr: tuple[float, float]
    confidence: float
    members: int
    nonmembers: int

    @property
    def most(self) -> float:
        """The largest ε that so many scores could have shown, had the attack made no mistake."""
        tail = (1 - self.confidence) / 2
        hits, misses = tail ** (1 / self.members), -math.expm1(math.log(tail) / self.nonmembers)
        return float(_shown(np.array([hits]), np.array([misses]), self.delta)[0])


def lower_bound(
    member_scores: Any, nonmember_scores: Any, delta: float, confidence: float = 0.95
) -> LowerBound:
    """A lower bound on ε at `delta` from scores [n], [m] of members and others; higher means more like a member."""
    members, others = _scores("member", member_scores), _scores("non-member", nonmember_scores)
    if not (is_number(delta) and 0 <= delta < 1):
        raise Misuse(
            f"delta is {delta!r}.", "Give a probability of at least 0 and below 1, e.g. 1e-5."
        )
    if not (is_number(confidence) and 0 < confidence < 1):
        raise Misuse(
            f"confidence is {confidence!r}.", "Give a probability between 0 and 1, e.g. 0.95."
        )
    tail = (1 - confidence) / 2
    choosing_in, judging_in = _halves(members)
    choosing_out, judging_out = _halves(others)
    tried = _thresholds(choosing_in, choosing_out)
    strict = tail / len(
        tried
    )  # one of many thresholds will look good by chance; prefer one that would not
    tpr, _ = _interval(_above(choosing_in, tried), len(choosing_in), strict)
    _, fpr = _interval(_above(choosing_out, tried), len(choosing_out), strict)
    threshold = float(tried[np.argmax(_shown(tpr, fpr, delta))])
    at = np.array([threshold])
    tpr_low, tpr_high = _interval(_above(judging_in, at), len(judging_in), tail)
    fpr_low, fpr_high = _interval(_above(judging_out, at), len(judging_out), tail)
    return LowerBound(
        epsilon=max(float(_shown(tpr_low, fpr_high, delta)[0]), 0.0),
        delta=float(delta),
        threshold=threshold,
        tpr=(float(tpr_low[0]), float(tpr_high[0])),
        fpr=(float(fpr_low[0]), float(fpr_high[0])),
        confidence=float(confidence),
        members=len(judging_in),
        nonmembers=len(judging_out),
    )


def verdict(lower: LowerBound, upper: float) -> str:
    """What a measured lower bound says of an upper bound on ε at the same δ, in words."""
    if isinstance(upper, bool) or not isinstance(upper, int | float) or not upper >= 0:
        raise Misuse(
            f"upper is {upper!r}.", "Give the accountant's ε: a number of at least 0, or math.inf."
        )
    shown = (
        f"the attack shows epsilon >= {lower.epsilon:.4g} at delta = {lower.delta:.3g} with {lower.confidence:.4g} "
        f"confidence (TPR >= {lower.tpr[0]:.4g} from {lower.members} members, FPR <= {lower.fpr[1]:.4g} from "
        f"{lower.nonmembers} non-members)"
    )
    if upper == math.inf:
        return f"no differential-privacy guarantee to contradict: {shown}."
    if lower.epsilon > upper:
        return f"a defect of the analysis: {shown}, more than the claimed epsilon <= {upper:.4g}."
    return (
        f"no contradiction: {shown}, and the claim is epsilon <= {upper:.4g}. This proves nothing about stronger "
        f"attacks; so many scores could have shown at most {lower.most:.4g}."
    )


def _shown(tpr: Array, fpr: Array, delta: float) -> Array:
    """The ε that TPR ≥ tpr and FPR ≤ fpr show, −∞ where they show none."""
    with np.errstate(divide="ignore"):
        caught = np.log(np.maximum(tpr - delta, 0.0)) - np.log(fpr)
        cleared = np.log(np.maximum(1 - fpr - delta, 0.0)) - np.log1p(-tpr)
    return np.asarray(np.maximum(caught, cleared))


def _interval(hits: NDArray[np.int64], total: int, tail: float) -> tuple[Array, Array]:
    """Clopper–Pearson limits of a probability, each wrong with probability at most `tail`."""
    low = np.where(hits == 0, 0.0, stats.beta.ppf(tail, np.maximum(hits, 1), total - hits + 1))
    high = np.where(hits == total, 1.0, stats.beta.isf(tail, hits + 1, np.maximum(total - hits, 1)))
    return low, high


def _above(scores: Array, thresholds: Array) -> NDArray[np.int64]:
    """How many of the sorted scores are at least each threshold."""
    return np.asarray(len(scores) - np.searchsorted(scores, thresholds, side="left"))


def _thresholds(inside: Array, outside: Array) -> Array:
    """Scores to try as thresholds: all, or when there are many those with ranks that are dense at both ends."""
    every = np.unique(np.concatenate([inside, outside]))
    if len(every) <= CANDIDATES:
        return every
    ranks = np.unique(np.geomspace(1, len(every), CANDIDATES // 2).astype(np.int64)) - 1
    return every[np.union1d(ranks, len(every) - 1 - ranks)]


def _halves(scores: Array) -> tuple[Array, Array]:
    """Two sorted halves, split by a fixed shuffle so that scores that come in order are split fairly too."""
    order = np.random.default_rng(len(scores)).permutation(len(scores))
    half = len(scores) // 2
    return np.sort(scores[order[:half]]), np.sort(scores[order[half:]])


def _scores(name: str, given: Any) -> Array:
    scores = np.asarray(given, dtype=np.float64)
    if scores.ndim != 1 or len(scores) < 2 or np.isnan(scores).any():
        raise Misuse(
            f"The {name} scores have shape {scores.shape}, or hold what is not a number.",
            "Give at least two numbers: thresholds are chosen on one half and judged on the other.",
        )
    return scores
