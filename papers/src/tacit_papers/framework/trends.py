"""Claims about trends: one cell above another, curves above curves, numbers that stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tacit_papers.framework.artifact import Key
from tacit_papers.framework.claims import Claim, ClaimVerdict, Word, graded
from tacit_papers.framework.outcome import ArtifactResult, Missing


def above(
    pairs: Sequence[tuple[Key, Key]],
    text: str,
    paper: str,
    margin: float = 0.0,
    metric: str | None = None,
) -> Claim:
    """The first cell of every pair that was measured is above the second, by a margin."""

    def check(outcome: ArtifactResult) -> ClaimVerdict:
        gaps = [
            outcome.mean(high, metric) - outcome.mean(low, metric)
            for high, low in pairs
            if high in outcome and low in outcome
        ]
        if not gaps:
            raise Missing
        right = [gap >= margin for gap in gaps]
        ours = f"{gaps[0]:+.3g}" if len(gaps) == 1 else f"{min(gaps):+.3g} to {max(gaps):+.3g}"
        return ClaimVerdict(
            _word(right), ours, f"above in {sum(right)} of {len(right)} comparisons"
        )

    return Claim(text, paper, check)


def above_throughout(
    high: Key, low: Key, text: str, paper: str, margin: float = 0.0, column: str = "ssim"
) -> Claim:
    """The curve of the first cell is above that of the second by a margin; partly if at most of its places."""

    def check(outcome: ArtifactResult) -> ClaimVerdict:
        if high not in outcome or low not in outcome:
            raise Missing
        curves = (outcome.curve(key)[column] for key in (high, low))
        gaps = [a - b for a, b in zip(*curves, strict=True)]
        right = sum(gap >= margin for gap in gaps)
        word: Word = (
            "reproduced"
            if right == len(gaps)
            else "partly"
            if 2 * right > len(gaps)
            else "not reproduced"
        )
        ours = f"{min(gaps):+.3f} to {max(gaps):+.3f}"
        return ClaimVerdict(word, ours, f"above at {right} of {len(gaps)} iterations")

    return Claim(text, paper, check)


def steady(key: Key, text: str, paper: str, within: float, column: str = "ssim") -> Claim:
    """All of a cell's curve is within a tolerance of each other."""

    def check(outcome: ArtifactResult) -> ClaimVerdict:
        if key not in outcome:
            raise Missing
        curve = outcome.curve(key)[column]
        low, high = min(curve), max(curve)
        return ClaimVerdict(
            graded(high - low, within), f"{low:.3f} to {high:.3f}", f"tolerance {within:g}"
        )

    return Claim(text, paper, check)


def falls(keys: Sequence[Key], text: str, paper: str, margin: float = 0.05) -> Claim:
    """From the first to the last cell that was measured the mean falls by a margin, and rises nowhere by it."""

    def check(outcome: ArtifactResult) -> ClaimVerdict:
        means = [outcome.mean(key) for key in keys if key in outcome]
        if len(means) < 2:
            raise Missing
        ended = means[-1] <= means[0] - margin
        risen = any(b > a + margin for a, b in pairwise(means))
        word: Word = "not reproduced" if not ended else "partly" if risen else "reproduced"
        return ClaimVerdict(word, " > ".join(f"{mean:.3g}" for mean in means))

    return Claim(text, paper, check)


def unchanged(
    keys: Sequence[Key], text: str, paper: str, within: float, metric: str | None = None
) -> Claim:
    """The means of all cells that were measured are within a tolerance of each other."""

    def check(outcome: ArtifactResult) -> ClaimVerdict:
        means = [outcome.mean(key, metric) for key in keys if key in outcome]
        if len(means) < 2:
            raise Missing
        spread = max(means) - min(means)
        return ClaimVerdict(
            graded(spread, within), f"{min(means):.4g} to {max(means):.4g}", f"tolerance {within:g}"
        )

    return Claim(text, paper, check)


def _word(right: Sequence[bool]) -> Word:
    return "reproduced" if all(right) else "partly" if any(right) else "not reproduced"
