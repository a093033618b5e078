"""Claims about evidence: whether it is exact, and whether it reveals more than the class."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from tacit_papers.framework.cells import Key
from tacit_papers.framework.claims import ClaimVerdict, claim, grade_all
from tacit_papers.framework.results import ArtifactResult

CLOSE = 0.05  # SSIM above the class mean that does not count


@claim
def computed_exactly(
    result: ArtifactResult, keys: Sequence[Key], exactly: bool = True
) -> ClaimVerdict:
    """The audit proves that the evidence is exact in all measured cells, or in none."""
    exact = [share == 1 for share in result.means(keys, "exact")]
    word = grade_all([one == exactly for one in exact])
    noise = max(result.means(keys, "noise"))
    ours = f"exact in {sum(exact)} of {len(exact)} cells"
    return ClaimVerdict(word, ours, f"noise of at most {noise:.3g}")


@claim
def beyond_class(
    result: ArtifactResult, keys: Sequence[Key], *, more: bool = True, margin: float = CLOSE
) -> ClaimVerdict:
    """Pictures have more SSIM than the mean of their class, by a margin, or they have not."""
    found, base = result.means(keys), result.means(keys, "ssim_of_class_mean")
    holds = [(ours > mean + margin) == more for ours, mean in zip(found, base, strict=True)]
    span = f"{min(found):.3f} to {max(found):.3f}" if len(found) > 1 else f"{found[0]:.3f}"
    reason = f"the class mean has {statistics.fmean(base):.3f}"
    return ClaimVerdict(grade_all(holds), f"SSIM {span}", reason)
