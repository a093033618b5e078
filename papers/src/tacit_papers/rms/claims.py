"""Claims about where curves end, and about the error of an eavesdropper's estimate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tacit_papers.framework.cells import Key
from tacit_papers.framework.claims import Claim, ClaimVerdict, above, claim, grade, grade_all
from tacit_papers.framework.results import ArtifactResult

SHOWN, HIDDEN = 5.0, 30.0  # percent of the norm: largest error of a success, smallest of a failure


def ends_below(
    text: str, paper: str, low: Sequence[Key], high: Sequence[Key], **options: Any
) -> Claim:
    """Each of some cells ends lower than each of others; options are those of `above`."""
    return above(text, paper, [(top, bottom) for bottom in low for top in high], **options)


@claim
def error_at_most(
    result: ArtifactResult, keys: Sequence[Key], most: float = SHOWN, metric: str = "off_by"
) -> ClaimVerdict:
    """An eavesdropper's estimates are accurate: errors are in percent."""
    ours = [result.mean(key, metric) for key in keys]
    return ClaimVerdict(grade(max(ours), most), _off_by(ours), f"at most {most:g} %")


@claim
def error_at_least(
    result: ArtifactResult, keys: Sequence[Key], least: float = HIDDEN, metric: str = "off_by"
) -> ClaimVerdict:
    """An eavesdropper's estimates are inaccurate."""
    ours = [result.mean(key, metric) for key in keys]
    word = grade_all([one >= least for one in ours])
    return ClaimVerdict(word, _off_by(ours), f"at least {least:g} %")


def _off_by(errors: Sequence[float]) -> str:
    return f"off by {', '.join(f'{error:.3g}' for error in errors)} %"
