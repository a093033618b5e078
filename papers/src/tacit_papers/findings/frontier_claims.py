"""Claims about accuracy and leak: who can see the pictures, and what hiding them costs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from tacit.auditing.scoring.reconstruction import LEGIBLE
from tacit_papers.framework.cells import Key
from tacit_papers.framework.claims import (
    Claim,
    ClaimVerdict,
    full_scale_only,
    grade,
    grade_all,
    grade_least,
)
from tacit_papers.framework.results import ArtifactResult, NotMeasured

OURS = "our claim"
READ = 0.3  # SSIM above the class's mean picture: the samples themselves
HIDDEN = LEGIBLE
EARLY = "the quick version ends long before training does"


def excess(result: ArtifactResult, key: Key, together: bool = False) -> float:
    """The SSIM of the leak above that of the class's mean picture."""
    suffix = "_together" if together else ""
    return result.mean(key, f"leak{suffix}") - result.mean(key, f"class_mean{suffix}")


def shows(key: Key, text: str, *, together: bool = False) -> Claim:
    """The adversary reconstructs the pictures."""

    def check(result: ArtifactResult) -> ClaimVerdict:
        word = grade_least(excess(result, key, together), READ, HIDDEN)
        reason = f"at least {READ} above the class's mean picture"
        return ClaimVerdict(word, _leak(result, key, together), reason)

    return Claim(text, OURS, check)


def hides(key: Key, text: str, *, together: bool = False) -> Claim:
    """The attacks give no more than the class does."""

    def check(result: ArtifactResult) -> ClaimVerdict:
        above = excess(result, key, together)
        word = grade_all([above < HIDDEN, above < READ])
        reason = f"less than {HIDDEN} above the class's mean"
        return ClaimVerdict(word, _leak(result, key, together), reason)

    return Claim(text, OURS, check)


def costs(key: Key, reference: Key, text: str, most: float) -> Claim:
    """A setting loses at most so many points against another, paired by seed."""

    def check(result: ArtifactResult) -> ClaimVerdict:
        lost = _lost(result, key, reference)
        return ClaimVerdict(grade(lost, most), f"{lost:+.2f} points lost")

    return full_scale_only(Claim(text, OURS, check), EARLY)


def cheapest_noise(keys: Sequence[Key], reference: Key, text: str, least: float) -> Claim:
    """Of the settings that hide the pictures, every one loses at least so many points."""

    def check(result: ArtifactResult) -> ClaimVerdict:
        measured = [key for key in keys if key in result]
        if not measured:
            raise NotMeasured(keys)
        lost = {
            key: _lost(result, key, reference) for key in measured if excess(result, key) < HIDDEN
        }
        if not lost:
            return ClaimVerdict("not measured", "none of them hides the pictures")
        best = min(lost, key=lambda key: lost[key])
        reason = f"by {best[-1]}, the most accurate that hides"
        word = grade_all([lost[best] >= least])
        return ClaimVerdict(word, f"{lost[best]:.2f} points lost", reason)

    return full_scale_only(Claim(text, OURS, check), EARLY)


def _lost(result: ArtifactResult, key: Key, reference: Key) -> float:
    lost = result.differences(reference, key)
    if not lost:
        raise NotMeasured(key)
    return statistics.fmean(lost)


def _leak(result: ArtifactResult, key: Key, together: bool) -> str:
    suffix = "_together" if together else ""
    leak, floor = (result.mean(key, f"{name}{suffix}") for name in ("leak", "class_mean"))
    return f"SSIM {leak:.2f} ({result[key].first[f'by{suffix}']}), class mean {floor:.2f}"
