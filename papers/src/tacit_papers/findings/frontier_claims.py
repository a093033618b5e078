"""Claims about accuracy and leak: who has the pictures, who has not, and what that costs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from tacit.auditing.scoring.reconstruction import LEGIBLE
from tacit_papers.framework.artifact import Key
from tacit_papers.framework.claims import Claim, ClaimVerdict, Word, graded
from tacit_papers.framework.outcome import ArtifactResult, Missing

OURS = "our claim"
READ = 0.3  # of SSIM above the mean picture of the class: the samples themselves
HIDDEN = LEGIBLE
EARLY = "the quick version ends long before training does"


def excess(outcome: ArtifactResult, key: Key, together: bool = False) -> float:
    """By how much the leak is above that of the class's mean picture."""
    which = "_together" if together else ""
    return outcome.mean(key, f"leak{which}") - outcome.mean(key, f"class_mean{which}")


def shows(key: Key, text: str, *, together: bool = False) -> Claim:
    """A claim that the pictures are had."""

    def check(outcome: ArtifactResult) -> ClaimVerdict:
        above = excess(outcome, key, together)
        word: Word = (
            "reproduced" if above >= READ else "partly" if above >= HIDDEN else "not reproduced"
        )
        return ClaimVerdict(
            word, _told(outcome, key, together), f"{READ} above the class's mean picture wanted"
        )

    return Claim(text, OURS, check)


def hides(key: Key, text: str, *, together: bool = False) -> Claim:
    """A claim that the attacks give no more than the class does."""

    def check(outcome: ArtifactResult) -> ClaimVerdict:
        above = excess(outcome, key, together)
        word: Word = (
            "reproduced" if above < HIDDEN else "partly" if above < READ else "not reproduced"
        )
        return ClaimVerdict(
            word, _told(outcome, key, together), f"less than {HIDDEN} above the class's mean wanted"
        )

    return Claim(text, OURS, check)


def costs(key: Key, other: Key, text: str, most: float) -> Claim:
    """A claim that a setting loses at most so many points against another, paired by seed."""

    def check(outcome: ArtifactResult) -> ClaimVerdict:
        lost = _lost(outcome, key, other)
        if outcome.scale.quick:
            return ClaimVerdict("not measured", f"{lost:+.2f} points lost", EARLY)
        return ClaimVerdict(graded(lost, most), f"{lost:+.2f} points lost")

    return Claim(text, OURS, check)


def cheapest_noise(keys: Sequence[Key], other: Key, text: str, least: float) -> Claim:
    """A claim that of the settings that hide the pictures every one loses so many points at least."""

    def check(outcome: ArtifactResult) -> ClaimVerdict:
        there = [key for key in keys if key in outcome]
        if not there:
            raise Missing(keys)
        hidden = {key: _lost(outcome, key, other) for key in there if excess(outcome, key) < HIDDEN}
        if not hidden:
            return ClaimVerdict("not measured", "none of them hides the pictures")
        best = min(hidden, key=lambda key: hidden[key])
        if outcome.scale.quick:
            return ClaimVerdict("not measured", f"{hidden[best]:.2f} points lost", EARLY)
        word: Word = "reproduced" if hidden[best] >= least else "not reproduced"
        return ClaimVerdict(
            word, f"{hidden[best]:.2f} points lost", f"by {best[-1]}, the most accurate that hides"
        )

    return Claim(text, OURS, check)


def _lost(outcome: ArtifactResult, key: Key, other: Key) -> float:
    lost = outcome.differences(other, key)
    if not lost:
        raise Missing(key)
    return statistics.fmean(lost)


def _told(outcome: ArtifactResult, key: Key, together: bool) -> str:
    which = "_together" if together else ""
    by = outcome[key].values[min(outcome[key].values)][f"by{which}"]
    leak, floor = (outcome.mean(key, f"{name}{which}") for name in ("leak", "class_mean"))
    return f"SSIM {leak:.2f} ({by}), class mean {floor:.2f}"
