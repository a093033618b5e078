"""Claims about an artifact, and how our numbers are graded against them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import pairwise
from typing import Concatenate, Literal, ParamSpec

from tacit_papers.framework.cells import Cell, Key, Published
from tacit_papers.framework.results import ArtifactResult, NotMeasured

P = ParamSpec("P")
Grade = Literal["reproduced", "partly", "not reproduced", "not measured"]
PARTLY = 3.0  # tolerances within which a number is partly reproduced
TOO_SMALL = "the quick version is too small to compare"


@dataclass(frozen=True)
class ClaimVerdict:
    """The grade of a claim, our numbers, and the reason."""

    grade: Grade
    ours: str
    reason: str = ""


@dataclass(frozen=True)
class Claim:
    """A statement of the paper with its number, and the function that checks our result."""

    text: str
    paper: str
    check: Callable[[ArtifactResult], ClaimVerdict]

    def judge(self, result: ArtifactResult) -> ClaimVerdict:
        try:
            return self.check(result)
        except NotMeasured:
            return ClaimVerdict("not measured", "", "its cells were left out of this run")


def claim(
    check: Callable[Concatenate[ArtifactResult, P], ClaimVerdict],
) -> Callable[Concatenate[str, str, P], Claim]:
    """Decorate a check of a result: it becomes a function `(text, paper, ...) -> Claim`.

    The other arguments are those of the check, without the result.
    """

    @wraps(check)
    def make(text: str, paper: str, /, *args: P.args, **kwargs: P.kwargs) -> Claim:
        return Claim(text, paper, lambda result: check(result, *args, **kwargs))

    return make


def grade(excess: float, tolerance: float) -> Grade:
    """Grade a number that should be at most the tolerance."""
    if excess <= tolerance:
        return "reproduced"
    return "partly" if excess <= PARTLY * tolerance else "not reproduced"


def grade_all(holds: Sequence[bool]) -> Grade:
    """Grade a claim about several cells: it holds for all, for some, or for none."""
    return "reproduced" if all(holds) else "partly" if any(holds) else "not reproduced"


def grade_least(value: float, least: float, partly: float) -> Grade:
    """Grade a number that should be at least `least`; from `partly` on it counts in part."""
    return "reproduced" if value >= least else "partly" if value >= partly else "not reproduced"


def full_scale_only(claim: Claim, reason: str = TOO_SMALL) -> Claim:
    """The same claim, which the quick version does not judge."""

    def check(result: ArtifactResult) -> ClaimVerdict:
        verdict = claim.check(result)
        quick = result.scale.quick
        return ClaimVerdict("not measured", verdict.ours, reason) if quick else verdict

    return Claim(claim.text, claim.paper, check)


def number_claims(cells: Sequence[Cell], tolerance: Callable[[Key], float]) -> list[Claim]:
    """One claim per published number: ours is within a tolerance of it."""
    return [
        full_scale_only(
            _near(" · ".join(cell.key), str(cell.paper), cell.key, cell.paper, tolerance(cell.key))
        )
        for cell in cells
        if cell.paper is not None
    ]


@claim
def _near(result: ArtifactResult, key: Key, paper: Published, tolerance: float) -> ClaimVerdict:
    off = f"{abs(result.mean(key) - paper.mean):.2f}"
    reason = f"off by {off}, tolerance {tolerance:g}"
    return ClaimVerdict(grade(float(off), tolerance), result.formatted(key), reason)


@claim
def mean_loss(
    result: ArtifactResult, reference: str, other: str, grading: Callable[[float], Grade]
) -> ClaimVerdict:
    """What cells with one label on the last axis lose against a reference, averaged over all rows.

    Losses are paired by seed.
    """
    rows = dict.fromkeys(cell.key[:-1] for cell in result.measured)
    pairs = [((*row, reference), (*row, other)) for row in rows]
    losses = [
        statistics.fmean(result.differences(better, worse))
        for better, worse in pairs
        if better in result and worse in result
    ]
    if not losses:
        raise NotMeasured
    lost = statistics.fmean(losses)
    span = f"over {len(losses)} pairs, from {min(losses):+.2f} to {max(losses):+.2f}"
    return ClaimVerdict(grading(lost), f"{lost:+.2f}", span)


@claim
def ordered(
    result: ArtifactResult, keys: Sequence[Key], metric: str | None = None, margin: float = 0.0
) -> ClaimVerdict:
    """The means of some cells ascend, each by at least a margin.

    Partly, if one ascends by less than the standard error of the difference over the repeats.
    """
    means = [result.mean(key, metric) for key in keys]
    ours = " < ".join(f"{mean:.4g}" for mean in means)
    holds = [low + margin <= high for low, high in pairwise(means)]
    unclear = [
        f"{high - low:.2g} ± {error:.2g}"
        for (low, high), pair, holding in zip(pairwise(means), pairwise(keys), holds, strict=True)
        if holding and high - low < (error := standard_error(result.differences(*pair, metric)))
    ]
    if all(holds) and unclear:
        return ClaimVerdict("partly", ours, f"within the standard error: {', '.join(unclear)}")
    return ClaimVerdict(grade_all(holds), ours)


def standard_error(values: Sequence[float]) -> float:
    """Of a mean; zero if there is only one value, which tells nothing about it."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


@claim
def above(
    result: ArtifactResult,
    pairs: Sequence[tuple[Key, Key]],
    margin: float = 0.0,
    metric: str | None = None,
) -> ClaimVerdict:
    """The first cell of every measured pair is above the second, by at least a margin."""
    gaps = [
        result.mean(high, metric) - result.mean(low, metric)
        for high, low in pairs
        if high in result and low in result
    ]
    if not gaps:
        raise NotMeasured
    holds = [gap >= margin for gap in gaps]
    ours = f"{gaps[0]:+.3g}" if len(gaps) == 1 else f"{min(gaps):+.3g} to {max(gaps):+.3g}"
    reason = f"above in {sum(holds)} of {len(holds)} comparisons"
    return ClaimVerdict(grade_all(holds), ours, reason)


@claim
def above_throughout(result: ArtifactResult, pair: tuple[Key, Key], margin: float) -> ClaimVerdict:
    """The SSIM curve of the first cell is above the second; partly if at more than half of it."""
    if not all(key in result for key in pair):
        raise NotMeasured
    high, low = (result.curve(key)["ssim"] for key in pair)
    gaps = [a - b for a, b in zip(high, low, strict=True)]
    count = sum(gap >= margin for gap in gaps)
    word = grade_least(count, len(gaps), (len(gaps) + 1) / 2)
    ours = f"{min(gaps):+.3f} to {max(gaps):+.3f}"
    return ClaimVerdict(word, ours, f"above at {count} of {len(gaps)} iterations")


@claim
def steady(result: ArtifactResult, key: Key, within: float) -> ClaimVerdict:
    """The points of an SSIM curve are within a tolerance of each other."""
    if key not in result:
        raise NotMeasured
    curve = result.curve(key)["ssim"]
    low, high = min(curve), max(curve)
    word = grade(high - low, within)
    return ClaimVerdict(word, f"{low:.3f} to {high:.3f}", f"tolerance {within:g}")


@claim
def falls(result: ArtifactResult, keys: Sequence[Key], margin: float = 0.05) -> ClaimVerdict:
    """The mean falls from the first measured cell to the last; partly if it also rises."""
    means = result.means(keys, at_least=2)
    fallen = means[-1] <= means[0] - margin
    risen = any(later > earlier + margin for earlier, later in pairwise(means))
    word: Grade = "not reproduced" if not fallen else "partly" if risen else "reproduced"
    return ClaimVerdict(word, " > ".join(f"{mean:.3g}" for mean in means))


@claim
def unchanged(
    result: ArtifactResult, keys: Sequence[Key], within: float, metric: str | None = None
) -> ClaimVerdict:
    """The means of all measured cells are within a tolerance of each other."""
    means = result.means(keys, metric, at_least=2)
    word = grade(max(means) - min(means), within)
    ours = f"{min(means):.4g} to {max(means):.4g}"
    return ClaimVerdict(word, ours, f"tolerance {within:g}")
