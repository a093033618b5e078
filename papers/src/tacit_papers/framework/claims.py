"""Claims about an artifact, and whether our numbers bear them out."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from tacit_papers.framework.artifact import Cell, Key, Published
from tacit_papers.framework.outcome import ArtifactResult, Missing

Word = Literal["reproduced", "partly", "not reproduced", "not measured"]
PARTLY = 3.0  # tolerances within which a number is still partly that of the paper


@dataclass(frozen=True)
class ClaimVerdict:
    """Our numbers beside a claim."""

    word: Word
    ours: str
    why: str = ""


@dataclass(frozen=True)
class Claim:
    """Something that the paper says, with its number, and how to look whether it is so."""

    text: str
    paper: str
    check: Callable[[ArtifactResult], ClaimVerdict]

    def verdict(self, outcome: ArtifactResult) -> ClaimVerdict:
        """What our numbers say; a claim about cells that were left out is not judged."""
        try:
            return self.check(outcome)
        except Missing:
            return ClaimVerdict("not measured", "", "its cells were left out of this run")


def number_claims(cells: Sequence[Cell], within: Callable[[Key], float]) -> list[Claim]:
    """One claim for each cell that has a number in the paper: ours is within a tolerance of it."""
    return [
        _number_claim(cell.key, cell.paper, within(cell.key))
        for cell in cells
        if cell.paper is not None
    ]


def _number_claim(key: Key, paper: Published, tolerance: float) -> Claim:
    def check(outcome: ArtifactResult) -> ClaimVerdict:
        ours = spread(outcome, key)
        if outcome.scale.quick:
            return ClaimVerdict("not measured", ours, "the quick version is too small to compare")
        off = abs(outcome.mean(key) - paper.mean)
        return ClaimVerdict(
            graded(off, tolerance), ours, f"off by {off:.2f}, tolerance {tolerance:g}"
        )

    return Claim(" · ".join(key), str(paper), check)


def graded(off: float, tolerance: float) -> Word:
    """How well a number is met that should not be exceeded."""
    return (
        "reproduced"
        if off <= tolerance
        else "partly"
        if off <= PARTLY * tolerance
        else "not reproduced"
    )


def all_or_some(right: Sequence[bool]) -> Word:
    """How well a claim about several things is met: by all of them, by some, by none."""
    return "reproduced" if all(right) else "partly" if any(right) else "not reproduced"


def mean_losses(outcome: ArtifactResult, pairs: Sequence[tuple[Key, Key]]) -> list[float]:
    """What the second cell of each pair loses against the first in the mean, paired by seed."""
    found = [
        statistics.fmean(outcome.differences(better, worse))
        for better, worse in pairs
        if better in outcome and worse in outcome
    ]
    if not found:
        raise Missing
    return found


def spread_of(losses: Sequence[float]) -> str:
    """Of how many pairs, and how far apart they are."""
    return f"over {len(losses)} pairs, from {min(losses):+.2f} to {max(losses):+.2f}"


def mean_loss(
    pairs: Callable[[ArtifactResult], list[tuple[Key, Key]]], text: str, paper: str, most: float
) -> Claim:
    """A claim that some cells lose at most so much against others in the mean, paired by seed."""

    def check(outcome: ArtifactResult) -> ClaimVerdict:
        found = mean_losses(outcome, pairs(outcome))
        lost = statistics.fmean(found)
        return ClaimVerdict(graded(lost, most), f"{lost:+.2f}", spread_of(found))

    return Claim(text, paper, check)


def ordered(
    keys: Sequence[Key], text: str, paper: str, metric: str | None = None, margin: float = 0.0
) -> Claim:
    """A claim that the means of some cells ascend, by a margin at least."""

    def check(outcome: ArtifactResult) -> ClaimVerdict:
        means = [outcome.mean(key, metric) for key in keys]
        right = [low + margin <= high for low, high in pairwise(means)]
        word: Word = "reproduced" if all(right) else "partly" if any(right) else "not reproduced"
        return ClaimVerdict(word, " < ".join(f"{mean:.4g}" for mean in means))

    return Claim(text, paper, check)


def spread(outcome: ArtifactResult, key: Key, metric: str | None = None) -> str:
    """Mean ± deviation of a cell in the artifact's form."""
    form, mean, width = (
        outcome.artifact.form,
        outcome.mean(key, metric),
        outcome.deviation(key, metric),
    )
    return f"{mean:{form}}" if width is None else f"{mean:{form}} ± {width:{form}}"
