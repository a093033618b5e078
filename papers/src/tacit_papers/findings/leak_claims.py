"""Claims about evidence: whether it is exact, and whether it tells more of a sample than its class."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from tacit_papers.framework.artifact import Key
from tacit_papers.framework.claims import Claim, ClaimVerdict, all_or_some
from tacit_papers.framework.outcome import ArtifactResult, Missing

BESIDE = 0.05  # of SSIM: what is not above the class mean


def exactly(keys: Sequence[Key], text: str, known: bool) -> Claim:
    """A claim about what the audit proves: that evidence is exact in all cells, or in none."""

    def check(outcome: ArtifactResult) -> ClaimVerdict:
        here = [key for key in keys if key in outcome]
        if not here:
            raise Missing
        exact = [outcome.mean(key, "exact") == 1 for key in here]
        noise = max(outcome.mean(key, "noise") for key in here)
        words = f"exact in {sum(exact)} of {len(exact)} cells"
        return ClaimVerdict(
            all_or_some([one == known for one in exact]), words, f"noise of {noise:.3g} at most"
        )

    return Claim(text, "our claim", check)


def beyond_class(
    keys: Sequence[Key], text: str, paper: str, *, more: bool, margin: float = BESIDE
) -> Claim:
    """A claim that pictures are nearer than the mean of their class, by a margin of SSIM, or are not."""

    def check(outcome: ArtifactResult) -> ClaimVerdict:
        here = [key for key in keys if key in outcome]
        if not here:
            raise Missing
        found = [outcome.mean(key) for key in here]
        base = [outcome.mean(key, "ssim_of_class_mean") for key in here]
        right = [(ours > mean + margin) == more for ours, mean in zip(found, base, strict=True)]
        words = (
            f"SSIM {min(found):.3f} to {max(found):.3f}"
            if len(found) > 1
            else f"SSIM {found[0]:.3f}"
        )
        return ClaimVerdict(
            all_or_some(right), words, f"the class mean has {statistics.fmean(base):.3f}"
        )

    return Claim(text, paper, check)
