"""Claims about evidence: whether it is exact, and whether it reveals more than the class."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from tacit_papers.framework.cells import Key
from tacit_papers.framework.claims import Claim, ClaimVerdict, grade_all
from tacit_papers.framework.results import ArtifactResult

CLOSE = 0.05  # SSIM above the class mean that does not count


def computed_exactly(keys: Sequence[Key], text: str, exactly: bool = True) -> Claim:
    """The audit proves that the evidence is exact in all measured cells, or in none."""

    def check(result: ArtifactResult) -> ClaimVerdict:
        exact = [share == 1 for share in result.means(keys, "exact")]
        word = grade_all([one == exactly for one in exact])
        noise = max(result.means(keys, "noise"))
        ours = f"exact in {sum(exact)} of {len(exact)} cells"
        return ClaimVerdict(word, ours, f"noise of at most {noise:.3g}")

    return Claim(text, "our claim", check)


def beyond_class(
    keys: Sequence[Key],
    text: str,
    paper: str = "our claim",
    *,
    more: bool = True,
    margin: float = CLOSE,
) -> Claim:
    """Pictures are closer to the truth than the mean of their class, or they are not.

    Args:
        keys: The cells, as far as they are measured.
        text: The claim in words.
        paper: What the paper says.
        more: False for the claim that they are not closer.
        margin: By how much more SSIM they have.
    """

    def check(result: ArtifactResult) -> ClaimVerdict:
        found, base = result.means(keys), result.means(keys, "ssim_of_class_mean")
        holds = [(ours > mean + margin) == more for ours, mean in zip(found, base, strict=True)]
        span = f"{min(found):.3f} to {max(found):.3f}" if len(found) > 1 else f"{found[0]:.3f}"
        reason = f"the class mean has {statistics.fmean(base):.3f}"
        return ClaimVerdict(grade_all(holds), f"SSIM {span}", reason)

    return Claim(text, paper, check)
