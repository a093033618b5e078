"""How well scores distinguish members from non-members: ROC curve, AUC, and TPR at low FPR.

    AUC = P(s⁺ > s⁻) + ½ P(s⁺ = s⁻), estimated by Mann–Whitney over all pairs

The interval is DeLong's (DeLong, DeLong, Clarke-Pearson 1988) on the logit scale. With m members, n
non-members, V⁺ᵢ the AUC of member i alone against all non-members and V⁻ⱼ likewise,

    var = S²(V⁺)/m + S²(V⁻)/n,   logit(AUC) ± z √var / (AUC (1 − AUC)).

If that variance is zero (all members above all non-members, or all scores equal), the interval is
Newcombe's score interval (2006, method 5): all A with
(AUC − A)² ≤ z² A(1−A)/(mn) · [1 + ν((1−A)/(2−A) + A/(1+A))], ν = (m + n)/2 − 1. Both describe the
choice of candidates for one trained model. Another training would give another AUC.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import betainccinv, betaincinv, expit, logit, ndtri
from torch import Tensor

from tacit.core.errors import Misuse
from tacit.tasks.metrics.ranking import auc, doubled_ranks

Array = NDArray[np.float64]
LEVEL = 0.95  # of all intervals
RATES = (0.01, 0.001)
MIN_FALSE = 10  # expected non-members above a threshold that make its rate meaningful


@dataclass(frozen=True)
class OperatingPoint:
    """The true-positive rate at a false-positive rate of at most `fpr`."""

    fpr: float
    tpr: float | None  # None if there are too few non-members
    # Clopper–Pearson for the given threshold, without the uncertainty of its choice.
    interval: tuple[float, float] | None
    reason: str | None = None  # why tpr is None


@dataclass(frozen=True, eq=False)
class Roc:
    """The corners of the ROC curve from (0, 0) to (1, 1), its area and operating points."""

    auc: float
    interval: tuple[float, float]
    fpr: Array
    tpr: Array
    members: int
    non_members: int
    at: tuple[OperatingPoint, ...]

    @classmethod
    def from_scores(cls, members: Tensor | ArrayLike, non_members: Tensor | ArrayLike) -> Roc:
        """The curve of scores [m] of members and [n] of non-members; ±∞ are allowed."""
        positive, negative = as_scores("member", members), as_scores("non-member", non_members)
        auc, variance = _delong(positive, negative)
        true, false = _counts(positive, negative)
        right, up = np.diff(false), np.diff(true)
        turns = right[1:] * up[:-1] != right[:-1] * up[1:]
        corner = np.concatenate([[True], turns, [True]])
        return cls(
            auc,
            _interval(auc, variance, len(positive), len(negative)),
            false[corner] / len(negative),
            true[corner] / len(positive),
            len(positive),
            len(negative),
            tuple(_operating(rate, true, false) for rate in RATES),
        )

    def as_dict(self) -> dict[str, object]:
        return {
            "auc": self.auc,
            "interval": list(self.interval),
            "level": LEVEL,
            "method": "DeLong on the logit scale; Newcombe's score interval if its variance is 0",
            "members": self.members,
            "non_members": self.non_members,
            "fpr": self.fpr.tolist(),
            "tpr": self.tpr.tolist(),
            "at": [asdict(point) for point in self.at],
        }


def as_scores(name: str, given: Tensor | ArrayLike) -> Array:
    """At least two scores as a vector of numbers; raises Misuse for anything else."""
    if isinstance(given, Tensor):
        given = given.detach().cpu().numpy()
    scores = np.asarray(given, dtype=np.float64)
    if scores.ndim != 1 or len(scores) < 2 or np.isnan(scores).any():
        nan = ", some NaN" if np.isnan(scores).any() else ""
        raise Misuse(
            f"The {name} scores have shape {scores.shape}{nan}.",
            "Give one number per candidate, [n], and at least two candidates of each kind.",
        )
    return scores


def clopper_pearson(hits: int | NDArray[np.int64], total: int, tail: float) -> tuple[Array, Array]:
    """Clopper–Pearson limits of a probability, each wrong with probability at most `tail`.

    Args:
        hits: Successes, a number or an array.
        total: Trials.
        tail: The probability that a limit is wrong.
    """
    hits = np.asarray(hits)
    low = np.where(hits == 0, 0.0, betaincinv(np.maximum(hits, 1), total - hits + 1, tail))
    high = np.where(hits == total, 1.0, betainccinv(hits + 1, np.maximum(total - hits, 1), tail))
    return low, high


def _delong(positive: Array, negative: Array) -> tuple[float, float]:
    """AUC and its variance, V⁺ and V⁻ from mid-ranks (Sun and Xu 2014)."""
    m, n = len(positive), len(negative)
    scores = torch.from_numpy(np.concatenate([positive, negative]))[:, None]
    ranks = _mid_ranks(scores)
    of_member = (ranks[:m] - _mid_ranks(scores[:m])) / n
    of_non_member = 1 - (ranks[m:] - _mid_ranks(scores[m:])) / m
    area = float(auc(scores, torch.arange(m + n) < m, (1,)))
    return area, float(of_member.var(ddof=1) / m + of_non_member.var(ddof=1) / n)


def _mid_ranks(scores: Tensor) -> Array:
    """The rank of each score [n, 1] from 1 on; equal scores have the mean of their ranks."""
    ranks: Array = doubled_ranks(scores)[:, 0].numpy() / 2
    return ranks


def _interval(auc: float, variance: float, m: int, n: int) -> tuple[float, float]:
    z = float(ndtri((1 + LEVEL) / 2))
    if 0 < auc < 1 and variance > 1e-20:
        half = z * math.sqrt(variance) / (auc * (1 - auc))
        return float(expit(logit(auc) - half)), float(expit(logit(auc) + half))
    spread = (m + n) / 2 - 1

    def excess(a: float) -> float:
        scale = a * (1 - a) / (m * n) * (1 + spread * ((1 - a) / (2 - a) + a / (1 + a)))
        return (auc - a) ** 2 - z**2 * scale

    low = 0.0 if auc == 0 else float(brentq(excess, 0.0, auc if auc < 1 else 1 - 1e-12))
    high = 1.0 if auc == 1 else float(brentq(excess, auc if auc > 0 else 1e-12, 1.0))
    return low, high


def _counts(positive: Array, negative: Array) -> tuple[Array, Array]:
    """Members and non-members at or above each distinct score from the highest, after (0, 0)."""
    steps = np.unique(np.concatenate([positive, negative]))[::-1]
    above = [len(s) - np.searchsorted(np.sort(s), steps, side="left") for s in (positive, negative)]
    true, false = (np.concatenate([[0.0], counts.astype(np.float64)]) for counts in above)
    return true, false


def _operating(rate: float, true: Array, false: Array) -> OperatingPoint:
    members, non_members = int(true[-1]), int(false[-1])
    needed = math.ceil(MIN_FALSE / rate - 1e-9)
    if non_members < needed:
        reason = (
            f"{non_members:,} non-members are too few for a rate of {rate:g}: it needs {needed:,}"
        )
        return OperatingPoint(rate, None, None, reason)
    allowed = math.floor(rate * non_members + 1e-9)
    hits = int(true[false <= allowed].max())
    low, high = clopper_pearson(hits, members, (1 - LEVEL) / 2)
    return OperatingPoint(rate, hits / members, (float(low), float(high)))
