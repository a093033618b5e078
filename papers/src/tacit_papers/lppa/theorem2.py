"""Theorem 2 of the LPPA paper: what a sum of Laplace variables guarantees.

The paper takes the difference of two Laplace(β) variables for Laplace(√2 β), because it has that
variance, and concludes that the budget is √2 times smaller. The difference is no Laplace variable:
its density falls by e^(−Δ/β) in the tails however many terms it has, so the pure ε of one message
is Δ/β for one unknown term, for two, and for ten. Only (ε, δ) with δ > 0 gains from more terms. A
neighbour that shares a mask knows it: one term less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from tacit.privacy.accounting.laplace import sum_pure_epsilon
from tacit.privacy.accounting.loss_distribution import PrivacyLoss
from tacit.report.style import PALETTE, plot_style
from tacit_papers.framework.artifact import Artifact
from tacit_papers.framework.cells import Cell, MeasureContext, Scale, Values
from tacit_papers.framework.claims import Claim, ClaimVerdict, grade_all, grade_least
from tacit_papers.framework.contradictions import Cause, Contradiction
from tacit_papers.framework.results import ArtifactResult

RATIOS = (0.25, 0.5, 1.0, 2.0, 4.0)  # Δ/β
TERMS = (1, 2, 3, 4, 8)  # noise terms of a message that the adversary does not know
DELTAS = (1e-5, 1e-3, 1e-1)


@dataclass(frozen=True)
class LaplaceBudget:
    """ε of one message with unknown Laplace(β) terms, for gradients of L1 sensitivity Δ."""

    ratio: float  # Δ/β
    terms: int

    def describe(self) -> dict[str, Any]:
        return {"budget": {"sensitivity over scale": self.ratio, "unknown terms": self.terms}}

    def __call__(self, seed: int, context: MeasureContext) -> Values:
        loss = PrivacyLoss.laplace(self.ratio, self.terms)
        return {
            "epsilon": sum_pure_epsilon(self.ratio, self.terms),
            "papers_epsilon": self.ratio / math.sqrt(self.terms),
            **{f"epsilon_at_{delta:g}": loss.epsilon(delta) for delta in DELTAS},
        }


def _cells(scale: Scale) -> list[Cell]:
    return [
        Cell((f"{ratio:g}", f"{terms}"), LaplaceBudget(ratio, terms))
        for ratio in RATIOS
        for terms in TERMS
    ]


def _draw(result: ArtifactResult) -> Figure:
    """ε over the number of unknown terms: pure, at three δ, and as the paper has it; Δ/β = 1."""
    counts = [int(k) for k in result.labels(1) if ("1", k) in result]
    lines = {
        "epsilon": ("pure ε: Δ/β, always", "o-", PALETTE[0]),
        **{
            f"epsilon_at_{delta:g}": (f"ε at δ = {delta:g}", "o-", PALETTE[number])
            for number, delta in enumerate(DELTAS, 1)
        },
        "papers_epsilon": ("Δ/(√k β): the paper's reading", "--", PALETTE[-1]),
    }
    with plot_style():
        figure = Figure(figsize=(6.0, 3.4), layout="constrained")
        axes = figure.add_subplot()
        for metric, (label, line, colour) in lines.items():
            means = [result.mean(("1", str(k)), metric) for k in counts]
            axes.plot(counts, means, line, color=colour, label=label)
        axes.set_xlabel("Laplace terms that the adversary does not know")
        axes.set_ylabel("ε of one message (Δ/β = 1)")
        axes.set_ylim(bottom=0)
        figure.legend(loc="outside lower center", ncols=2)
    return figure


def _gain(result: ArtifactResult, metric: str) -> float:
    """By what factor a second unknown term lowers ε."""
    return result.mean(("1", "1"), metric) / result.mean(("1", "2"), metric)


def _root_two(result: ArtifactResult) -> ClaimVerdict:
    gain = _gain(result, "epsilon")
    word = grade_all([math.isclose(gain, math.sqrt(2), rel_tol=0.01)])
    reason = "the pure ε of one message is Δ/β for one term and for two"
    return ClaimVerdict(word, f"× {gain:.3f}", reason)


def _some_delta(result: ArtifactResult) -> ClaimVerdict:
    gains = {delta: _gain(result, f"epsilon_at_{delta:g}") for delta in DELTAS}
    word = grade_least(max(gains.values()), math.sqrt(2), 1.01)
    ours = ", ".join(f"× {gain:.3f} at δ = {delta:g}" for delta, gain in gains.items())
    return ClaimVerdict(word, ours)


ARTIFACTS = (
    Artifact(
        name="lppa/theorem2",
        title="Theorem 2: the privacy budget of LPPA's first message",
        axes=("Δ/β", "unknown terms"),
        cells=_cells,
        metric="epsilon",
        claims=[
            Claim(
                "the budget of a noise difference is √2 times smaller (pure ε)",
                "× 1.414",
                _root_two,
            ),
            Claim("the same for (ε, δ) with some δ", "× 1.414", _some_delta),
        ],
        contradictions=(
            Contradiction(
                "the budget of a noise difference is √2 times smaller (pure ε)",
                Cause.FALSE,
                "A sum of two Laplace(β) variables has the variance of Laplace(√2β), but not its "
                "density: the tails still fall as those of one term, and the pure ε is set by the "
                "tails. It is Δ/β for any number of terms.",
            ),
        ),
        draw=_draw,
        protocol=(
            "privacy loss of one message with k unknown Laplace(β) terms, computed from the "
            "density of their sum; gradients clipped so that Δ is their sensitivity, which "
            "neither the paper nor its experiments do"
        ),
        quickly="the same",
        repeats=1,
        form=".3g",
        unit="ε",
    ),
)
