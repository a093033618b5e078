"""How well scores tell members from non-members: ROC curve, its area, and the true positives at few false ones.

    AUC = P(s⁺ > s⁻) + ½ P(s⁺ = s⁻), estimated by Mann–Whitney over all pairs

The interval is DeLong's (DeLong, DeLong, Clarke-Pearson 1988) on the logit scale. With m members, n non-members,
V⁺ᵢ the AUC of member i alone against all non-members and V⁻ⱼ likewise,

    var = S²(V⁺)/m + S²(V⁻)/n,   logit(AUC) ± z √var / (AUC (1 − AUC)).

Where that variance is zero (all members above all non-members, all scores equal) it would be a point; there it is
Newcombe's score interval (2006, method 5): all A with (AUC − A)² ≤ z² A(1−A)/(mn) · [1 + ν((1−A)/(2−A) + A/(1+A))],
ν = (m + n)/2 − 1. Both are over candidates for the one trained model; another training would give another AUC.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import expit, logit
from scipy.stats import beta, norm, rankdata
from torch import Tensor

from tacit.core.arguments import is_number
from tacit.core.errors import Misuse

Array = NDArray[np.float64]
RATES = (0.01, 0.001)
EXPECTED_FALSE = 10  # non-members beyond the threshold, for its rate to mean something


@dataclass(frozen=True)
class Operating:
    """The share of members found while at most a share `fpr` of non-members is accused."""

    fpr: float
    tpr: float | None
    """None where there are too few non-members; `reason` says how many it takes."""
    interval: tuple[float, float] | None
    """Clopper–Pearson for the threshold as it was set, whose own uncertainty it leaves out."""
    reason: str | None = None


@dataclass(frozen=True, eq=False)
class Roc:
    """The curve from (0, 0) to (1, 1), corners only, and what is read off it."""

    auc: float
    interval: tuple[float, float]
    level: float
    fpr: Array
    tpr: Array
    members: int
    non_members: int
    at: tuple[Operating, ...]

    @classmethod
    def from_scores(
        cls,
        members: Tensor | ArrayLike,
        non_members: Tensor | ArrayLike,
        *,
        level: float = 0.95,
        rates: Sequence[float] = RATES,
    ) -> Roc:
        """From the scores of members and of non-members; a higher score says "member". ±∞ are allowed."""
        positive, negative = _scores("members", members), _scores("non-members", non_members)
        for name, value in (("level", level), *(("rates", rate) for rate in rates)):
            if not (is_number(value) and 0 < value < 1):
                raise Misuse(
                    f"{name} has {value!r}.", "Give a share between 0 and 1, e.g. level = 0.95."
                )
        auc, variance = _delong(positive, negative)
        true, false = _counts(positive, negative)
        corner = _corners(true, false)
        return cls(
            auc,
            _interval(auc, variance, len(positive), len(negative), level),
            level,
            false[corner] / len(negative),
            true[corner] / len(positive),
            len(positive),
            len(negative),
            tuple(_operating(rate, true, false, level) for rate in rates),
        )

    @property
    def tells_apart(self) -> bool:
        """The interval is above ½: these scores do tell members from non-members."""
        return self.interval[0] > 0.5

    def as_dict(self) -> dict[str, object]:
        """Plain values, for JSON."""
        return {
            "auc": self.auc,
            "interval": list(self.interval),
            "level": self.level,
            "method": "DeLong on the logit scale; Newcombe's score interval where its variance is zero",
            "members": self.members,
            "non_members": self.non_members,
            "fpr": self.fpr.tolist(),
            "tpr": self.tpr.tolist(),
            "at": [
                {
                    "fpr": point.fpr,
                    "tpr": point.tpr,
                    "interval": None if point.interval is None else list(point.interval),
                    "reason": point.reason,
                }
                for point in self.at
            ],
        }


def clopper_pearson(found: int, of: int, level: float = 0.95) -> tuple[float, float]:
    """The exact interval of a share of which `found` among `of` were seen."""
    tail = (1 - level) / 2
    low = 0.0 if found == 0 else float(beta.ppf(tail, found, of - found + 1))
    high = 1.0 if found == of else float(beta.ppf(1 - tail, found + 1, of - found))
    return low, high


def _scores(name: str, given: Tensor | ArrayLike) -> Array:
    if isinstance(given, Tensor):
        given = given.detach().cpu().numpy()
    scores = np.asarray(given, dtype=np.float64)
    if scores.ndim != 1 or len(scores) < 2 or np.isnan(scores).any():
        raise Misuse(
            f"The scores of {name} have shape {scores.shape}{', some NaN' if np.isnan(scores).any() else ''}.",
            "Give one number per candidate, [n], and at least two candidates of each kind.",
        )
    return scores


def _delong(positive: Array, negative: Array) -> tuple[float, float]:
    """AUC and its variance, V⁺ and V⁻ from mid-ranks (Sun and Xu 2014)."""
    m, n = len(positive), len(negative)
    together = rankdata(np.concatenate([positive, negative]))
    of_member = (together[:m] - rankdata(positive)) / n
    of_non_member = 1 - (together[m:] - rankdata(negative)) / m
    auc = float((together[:m].sum() - m * (m + 1) / 2) / (m * n))  # one rounding: a half is a half
    return auc, float(of_member.var(ddof=1) / m + of_non_member.var(ddof=1) / n)


def _interval(auc: float, variance: float, m: int, n: int, level: float) -> tuple[float, float]:
    z = float(norm.ppf((1 + level) / 2))
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
    """Members and non-members at or above each distinct score, from the highest, after a (0, 0)."""
    steps = np.unique(np.concatenate([positive, negative]))[::-1]
    found = [len(s) - np.searchsorted(np.sort(s), steps, side="left") for s in (positive, negative)]
    true, false = (np.concatenate([[0.0], counts.astype(np.float64)]) for counts in found)
    return true, false


def _corners(true: Array, false: Array) -> NDArray[np.bool_]:
    """The points where the curve turns: the others lie on the line between their neighbours."""
    right, up = np.diff(false), np.diff(true)
    turns = right[1:] * up[:-1] != right[:-1] * up[1:]
    return np.concatenate([[True], turns, [True]])


def _operating(rate: float, true: Array, false: Array, level: float) -> Operating:
    members, non_members = int(true[-1]), int(false[-1])
    needed = math.ceil(EXPECTED_FALSE / rate - 1e-9)
    if non_members < needed:
        reason = (
            f"{non_members:,} non-members are too few for a rate of {rate:g}: it takes {needed:,}"
        )
        return Operating(rate, None, None, reason)
    allowed = math.floor(rate * non_members + 1e-9)
    found = int(true[false <= allowed].max())
    return Operating(rate, found / members, clopper_pearson(found, members, level))
