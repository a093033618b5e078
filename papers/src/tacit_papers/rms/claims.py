"""Claims about where curves end, and about the error of an eavesdropper's estimate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tacit_papers.framework.cells import Key
from tacit_papers.framework.claims import Claim, ClaimVerdict, above, grade, grade_all
from tacit_papers.framework.results import ArtifactResult

SHOWN, HIDDEN = 5.0, 30.0  # percent of the norm: largest error of a success, smallest of a failure


def ends_below(
    low: Sequence[Key], high: Sequence[Key], text: str, paper: str, **options: Any
) -> Claim:
    """Each of some cells ends lower than each of others; options are those of `above`."""
    return above([(top, bottom) for bottom in low for top in high], text, paper, **options)


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


def _off_by(errors: Sequence[float]) -> str:
    return f"off by {', '.join(f'{error:.3g}' for error in errors)} %"
