"""Claims about accuracy and leak: who can see the pictures, and what hiding them costs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from tacit.auditing.scoring.reconstruction import LEGIBLE
from tacit_papers.framework.cells import Key
from tacit_papers.framework.claims import ClaimVerdict, Grade, claim, grade, grade_all, grade_least
from tacit_papers.framework.results import ArtifactResult, NotMeasured

READ = 0.3  # SSIM above the class's mean picture: the samples themselves
HIDDEN = LEGIBLE
EARLY = "the quick version ends long before training does"


def excess(result: ArtifactResult, key: Key, together: bool = False) -> float:
    """The SSIM of the leak above that of the class's mean picture."""
    suffix = "_together" if together else ""
    return result.mean(key, f"leak{suffix}") - result.mean(key, f"class_mean{suffix}")


@claim
def shows(result: ArtifactResult, key: Key, *, together: bool = False) -> ClaimVerdict:
    """The adversary reconstructs the pictures."""
    word = grade_least(excess(result, key, together), READ, HIDDEN)
    reason = f"at least {READ} above the class's mean picture"
    return ClaimVerdict(word, _leak(result, key, together), reason)


@claim
def hides(result: ArtifactResult, key: Key, *, together: bool = False) -> ClaimVerdict:
    """The attacks give no more than the class does."""
    above = excess(result, key, together)
    reason = f"less than {HIDDEN} above the class's mean"
    word = grade_all([above < HIDDEN, above < READ])
    return ClaimVerdict(word, _leak(result, key, together), reason)


@claim
def costs(result: ArtifactResult, key: Key, reference: Key, most: float) -> ClaimVerdict:
    """A setting loses at most `most` points against another, paired by seed."""
    lost = _lost(result, key, reference)
    word: Grade = "not measured" if result.scale.quick else grade(lost, most)
    return ClaimVerdict(word, f"{lost:+.2f} points lost", EARLY if result.scale.quick else "")


@claim
def cheapest_noise(
    result: ArtifactResult, keys: Sequence[Key], reference: Key, least: float
) -> ClaimVerdict:
    """Of the settings that hide the pictures, every one loses at least `least` points."""
    measured = [key for key in keys if key in result]
    if not measured:
        raise NotMeasured(keys)
    hidden = [key for key in measured if excess(result, key) < HIDDEN]
    lost = {key: _lost(result, key, reference) for key in hidden}
    if not lost:
        return ClaimVerdict("not measured", "none of them hides the pictures")
    best = min(lost, key=lambda key: lost[key])
    ours = f"{lost[best]:.2f} points lost"
    if result.scale.quick:
        return ClaimVerdict("not measured", ours, EARLY)
    reason = f"by {best[-1]}, the most accurate that hides"
    return ClaimVerdict(grade_all([lost[best] >= least]), ours, reason)


def _lost(result: ArtifactResult, key: Key, reference: Key) -> float:
    lost = result.differences(reference, key)
    if not lost:
        raise NotMeasured(key)
    return statistics.fmean(lost)


def _leak(result: ArtifactResult, key: Key, together: bool) -> str:
    suffix = "_together" if together else ""
    leak, floor = (result.mean(key, f"{name}{suffix}") for name in ("leak", "class_mean"))
    return f"SSIM {leak:.2f} ({result[key].first[f'by{suffix}']}), class mean {floor:.2f}"
