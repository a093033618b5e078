"""Claims about where curves end, and about the error of an eavesdropper's estimate."""

from __future__ import annotations

from collections.abc import Sequence

from tacit_papers.framework.cells import Key
from tacit_papers.framework.claims import Claim, ClaimVerdict, grade, grade_all
from tacit_papers.framework.results import ArtifactResult

SHOWN, HIDDEN = 5.0, 30.0  # percent of the norm: largest error of a success, smallest of a failure


def ends_below(
    low: Sequence[Key],
    high: Sequence[Key],
    text: str,
    paper: str,
    margin: float = 0.0,
    metric: str | None = None,
) -> Claim:
    """Each of some cells ends lower than each of others; partly if some pairs do.

    Args:
        low: The lower cells.
        high: The higher cells.
        text: The claim in words.
        paper: What the paper says.
        margin: By how much they are lower, at least.
        metric: The number compared, by default the artifact's metric.
    """

    def check(result: ArtifactResult) -> ClaimVerdict:
        ours, others = ([result.mean(key, metric) for key in keys] for keys in (low, high))
        holds = [one + margin < other for one in ours for other in others]
        return ClaimVerdict(grade_all(holds), f"{_listed(ours)} against {_listed(others)}")

    return Claim(text, paper, check)


def error_at_most(
    keys: Sequence[Key], text: str, paper: str, most: float = SHOWN, metric: str = "off_by"
) -> Claim:
    """An eavesdropper's estimates are accurate.

    Args:
        keys: The cells.
        text: The claim in words.
        paper: What the paper says.
        most: The largest error in percent.
        metric: The error in percent.
    """

    def check(result: ArtifactResult) -> ClaimVerdict:
        ours = [result.mean(key, metric) for key in keys]
        return ClaimVerdict(grade(max(ours), most), _off_by(ours), f"at most {most:g} %")

    return Claim(text, paper, check)


def error_at_least(
    keys: Sequence[Key], text: str, paper: str, least: float = HIDDEN, metric: str = "off_by"
) -> Claim:
    """An eavesdropper's estimates are inaccurate; the arguments are those of `error_at_most`."""

    def check(result: ArtifactResult) -> ClaimVerdict:
        ours = [result.mean(key, metric) for key in keys]
        word = grade_all([one >= least for one in ours])
        return ClaimVerdict(word, _off_by(ours), f"at least {least:g} %")

    return Claim(text, paper, check)


def _listed(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:.3g}" for number in numbers)


def _off_by(errors: Sequence[float]) -> str:
    return f"off by {_listed(errors)} %"
