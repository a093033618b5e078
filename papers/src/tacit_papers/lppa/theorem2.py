"""Theorem 2 of the LPPA paper, read honestly: what a sum of Laplace variables guarantees, and what √2 does not say.

The paper takes the difference of two Laplace(β) variables for Laplace(√2 β), because its variance is that, and
concludes that the budget is √2 times smaller. The difference is no Laplace variable: its density falls by e^(−Δ/β) in
the tails however many terms it has, so that the pure ε of one message is Δ/β for one unknown term, for two, and for
ten. Only (ε, δ) with δ > 0 gains from further terms; and a neighbour that shares a mask knows it: one term less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from tacit.privacy.accounting.laplace import sum_pure_epsilon
from tacit.privacy.accounting.loss_distribution import PrivacyLoss
from tacit.report.style import PALETTE, plot_style
from tacit_papers.framework.artifact import Artifact, Cell, MeasureContext, Scale, Values
from tacit_papers.framework.claims import Claim, ClaimVerdict, Word
from tacit_papers.framework.outcome import ArtifactResult

RATIOS = (0.25, 0.5, 1.0, 2.0, 4.0)  # Δ/β
TERMS = (1, 2, 3, 4, 8)  # noise terms of a message that the adversary does not know
DELTAS = (1e-5, 1e-3, 1e-1)


@dataclass(frozen=True)
class Budget:
    """ε of one message with so many unknown Laplace(β) terms, for the sensitivity Δ of the gradient in the L1 norm."""

    ratio: float
    terms: int

    def describe(self) -> dict[str, Any]:
        """Δ/β and the number of terms."""
        return {"budget": {"sensitivity over scale": self.ratio, "unknown terms": self.terms}}

    def __call__(self, seed: int, place: MeasureContext) -> Values:
        """The same for every seed."""
        del seed, place
        loss = PrivacyLoss.laplace(self.ratio, self.terms)
        return {
            "epsilon": sum_pure_epsilon(self.ratio, self.terms),
            "papers_epsilon": self.ratio / math.sqrt(self.terms),
            **{f"epsilon_at_{delta:g}": loss.epsilon(delta) for delta in DELTAS},
        }


def _cells(scale: Scale) -> list[Cell]:
    del scale
    return [Cell((f"{ratio:g}", str(k)), Budget(ratio, k)) for ratio in RATIOS for k in TERMS]


def _draw(outcome: ArtifactResult) -> Figure:
    """ε over the number of unknown terms: pure, at three δ, and what the paper's reading would give; Δ/β = 1."""
    counts = [int(k) for k in outcome.places(1) if ("1", k) in outcome]

    def line(metric: str) -> list[float]:
        return [outcome.mean(("1", str(k)), metric) for k in counts]

    with plot_style():
        figure = Figure(figsize=(6.0, 3.4), layout="constrained")
        axes = figure.add_subplot()
        axes.plot(counts, line("epsilon"), "o-", color=PALETTE[0], label="pure ε: Δ/β, always")
        for number, delta in enumerate(DELTAS, 1):
            axes.plot(
                counts,
                line(f"epsilon_at_{delta:g}"),
                "o-",
                color=PALETTE[number],
                label=f"ε at δ = {delta:g}",
            )
        axes.plot(
            counts,
            line("papers_epsilon"),
            "--",
            color=PALETTE[-1],
            label="Δ/(√k β): the paper's reading",
        )
        axes.set_xlabel("Laplace terms that the adversary does not know")
        axes.set_ylabel("ε of one message (Δ/β = 1)")
        axes.set_ylim(bottom=0)
        figure.legend(loc="outside lower center", ncols=2)
    return figure


def _root_two(outcome: ArtifactResult) -> ClaimVerdict:
    one, two = (outcome.mean(("1", str(k)), "epsilon") for k in (1, 2))
    word: Word = (
        "reproduced" if math.isclose(one / two, math.sqrt(2), rel_tol=0.01) else "not reproduced"
    )
    return ClaimVerdict(
        word, f"× {one / two:.3f}", "the pure ε of one message is Δ/β for one term and for two"
    )


def _some_delta(outcome: ArtifactResult) -> ClaimVerdict:
    found = {
        delta: outcome.mean(("1", "1"), f"epsilon_at_{delta:g}")
        / outcome.mean(("1", "2"), f"epsilon_at_{delta:g}")
        for delta in DELTAS
    }
    best = max(found.values())
    word: Word = (
        "reproduced" if best >= math.sqrt(2) else "partly" if best > 1.01 else "not reproduced"
    )
    return ClaimVerdict(
        word, ", ".join(f"× {gain:.3f} at δ = {delta:g}" for delta, gain in found.items())
    )


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
        draw=_draw,
        protocol=(
            "privacy loss of one message with k unknown Laplace(β) terms, computed from the density of their sum; "
            "gradients clipped so that Δ is their sensitivity, which neither the paper nor its experiments do"
        ),
        quickly="the same",
        repeats=1,
        quick_repeats=1,
        form=".3g",
        unit="ε",
    ),
)
