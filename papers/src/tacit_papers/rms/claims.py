"""Claims of the dual-protection paper: which curve ends lower, which end alike, what a sliding mean shows."""

from __future__ import annotations

from collections.abc import Sequence

from tacit_papers.framework.artifact import Key
from tacit_papers.framework.claims import Claim, ClaimVerdict, Word, graded
from tacit_papers.framework.outcome import ArtifactResult

SHOWN, HIDDEN = 5.0, 30.0  # percent of the norm by which a mean may, or must, miss


def ends_below(
    low: Sequence[Key],
    high: Sequence[Key],
    text: str,
    paper: str,
    margin: float = 0.0,
    metric: str | None = None,
) -> Claim:
    """A claim that each of some cells ends lower than each of others, by a margin; partly if some pairs do."""

    def check(outcome: ArtifactResult) -> ClaimVerdict:
        ours, others = ([outcome.mean(key, metric) for key in keys] for keys in (low, high))
        right = [one + margin < other for one in ours for other in others]
        word: Word = "reproduced" if all(right) else "partly" if any(right) else "not reproduced"
        return ClaimVerdict(word, f"{_listed(ours)} against {_listed(others)}")

    return Claim(text, paper, check)


def end_alike(
    keys: Sequence[Key], text: str, paper: str, within: float, metric: str | None = None
) -> Claim:
    """A claim that some cells end within so much of each other."""

    def check(outcome: ArtifactResult) -> ClaimVerdict:
        ours = [outcome.mean(key, metric) for key in keys]
        apart = max(ours) - min(ours)
        return ClaimVerdict(
            graded(apart, within), _listed(ours), f"{apart:.2f} apart, tolerance {within:g}"
        )

    return Claim(text, paper, check)


def shown(
    keys: Sequence[Key], text: str, paper: str, metric: str = "off_by", most: float = SHOWN
) -> Claim:
    """A claim that what a listener makes of messages misses by little."""

    def check(outcome: ArtifactResult) -> ClaimVerdict:
        ours = [outcome.mean(key, metric) for key in keys]
        return ClaimVerdict(
            graded(max(ours), most), f"off by {_listed(ours)} %", f"at most {most:g} %"
        )

    return Claim(text, paper, check)


def hidden(
    keys: Sequence[Key], text: str, paper: str, metric: str = "off_by", least: float = HIDDEN
) -> Claim:
    """A claim that it misses by much."""

    def check(outcome: ArtifactResult) -> ClaimVerdict:
        ours = [outcome.mean(key, metric) for key in keys]
        right = [one >= least for one in ours]
        word: Word = "reproduced" if all(right) else "partly" if any(right) else "not reproduced"
        return ClaimVerdict(word, f"off by {_listed(ours)} %", f"at least {least:g} %")

    return Claim(text, paper, check)


def in_full(claim: Claim, why_not_quickly: str) -> Claim:
    """The same claim, not judged by the quick version."""

    def check(outcome: ArtifactResult) -> ClaimVerdict:
        found = claim.check(outcome)
        return (
            ClaimVerdict("not measured", found.ours, why_not_quickly)
            if outcome.scale.quick
            else found
        )

    return Claim(claim.text, claim.paper, check)


def _listed(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:.3g}" for number in numbers)
