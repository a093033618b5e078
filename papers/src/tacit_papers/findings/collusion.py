"""Finding: how much neighbours learn together, for every algorithm on the same graph, proved by linear algebra.

Eight clients, each with four neighbours; k of the victim's neighbours share what they know. The same text that trains
is run on symbols, and it is asked which gradients of the victim are in the span of what they saw and hold.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from tacit.auditing.adversary import Adversary
from tacit.auditing.symbolic.leakage import Leakage, Question
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.config.options import make_algorithm
from tacit.graph import Topology
from tacit.report.style import plot_style
from tacit_papers.framework.artifact import Artifact, Cell, MeasureContext, Scale, Values
from tacit_papers.framework.claims import Claim, ClaimVerdict, Word
from tacit_papers.framework.outcome import ArtifactResult, Missing

CLIENTS, REACH = 8, (1, 2)  # a circle on which everybody talks to the next two on both sides
NEIGHBOURS = (1, 2, 6, 7)  # of client 0, the victim
MASKS = {"lr": 0.05, "noise": {"law": "laplace", "scale": 0.025}}
RULES: dict[str, dict[str, Any]] = {
    "dsgt": {"name": "dsgt", "lr": 0.05},
    "dp-dsgt": {"name": "dp-dsgt", **MASKS},
    "dp-dsgt, every iteration": {"name": "dp-dsgt", "inject": "every", **MASKS},
    "lppa": {"name": "lppa", **MASKS},
    "lppa, fresh masks": {"name": "lppa", "fresh": True, **MASKS},
    "d-psgd": {"name": "d-psgd", "lr": 0.05},
    "dsg": {"name": "dsg", "lr": 0.05},
    "edsg": {"name": "edsg", "lr": 0.05},
    "dsg-rms": {"name": "dsg-rms", "lr": 0.05},
    "edsg-rms": {"name": "edsg-rms", "lr": 0.05},
    "dsgt-rms": {"name": "dsgt-rms", "lr": 0.05},
    "psgt": {"name": "psgt", "lr": 0.05},
    "mdsg": {"name": "mdsg", "lr": 0.05},
    "pd-lms": {"name": "pd-lms", "lr": 0.05},
    "defl-vp": {"name": "defl-vp", "lr": 0.05},
    "defl-vp, private variates": {"name": "defl-vp", "lr": 0.05, "private_variates": True},
    "pdmm": {"name": "pdmm", "noise": {"law": "gaussian", "scale": 1.0}},
    "admm": {"name": "admm", "noise": {"law": "gaussian", "scale": 1.0}},
}
ASKED: tuple[Question, ...] = ("gradient", "difference", "sum")


@dataclass(frozen=True)
class Colluding:
    """Of each kind of knowledge, the share of the iterations in which k neighbours have it exactly, or with noise."""

    algorithm: dict[str, Any] = field(hash=False)
    corrupt: int
    iterations: int

    def describe(self) -> dict[str, Any]:
        """The rule, the graph, and who is corrupt."""
        return {
            "colluding neighbours": self.corrupt,
            "algorithm": self.algorithm,
            "circulant graph": [CLIENTS, list(REACH)],
            "iterations": self.iterations,
        }

    def __call__(self, seed: int, place: MeasureContext) -> Values:
        """All subsets of so many neighbours are alike up to who they are: the worst of them counts."""
        del seed, place
        options = {key: value for key, value in self.algorithm.items() if key != "name"}
        algorithm = make_algorithm(self.algorithm["name"], options, 1, self.iterations)
        run = run_on_symbols(algorithm, _graph(), self.iterations)
        worst: dict[str, float] = {}
        for who in _subsets(self.corrupt):
            found = Leakage(Knowledge(run, Adversary.curious(*who)), 0)
            for question in ASKED:
                if question == "sum" and len(found.honest_component) == 1:
                    continue
                series = found.of(question)
                count = max(1, len(series.statuses))
                for status in ("exact", "noisy"):
                    share = len(series.indices(status)) / count
                    name = question if status == "exact" else f"{question}_noisy"
                    worst[name] = max(worst.get(name, 0.0), share)
        return {**worst, "leak": max(worst.get("gradient", 0.0), worst.get("difference", 0.0))}


def _graph() -> Any:
    pairs = [(i, (i + step) % CLIENTS) for i in range(CLIENTS) for step in REACH]
    return Topology.from_edges(pairs, CLIENTS).mixing("metropolis", lazy=True)


def _subsets(count: int) -> list[tuple[int, ...]]:
    """Neighbours taken from one side first, and from both sides."""
    return list(
        dict.fromkeys([NEIGHBOURS[:count], tuple(sorted((NEIGHBOURS[::-1] + NEIGHBOURS)[:count]))])
    )


def _cells(scale: Scale) -> list[Cell]:
    iterations = scale.pick(10, 4)
    return [
        Cell((label, str(k)), Colluding(rule, k, iterations))
        for label, rule in RULES.items()
        for k in range(1, len(NEIGHBOURS) + 1)
    ]


def _draw(outcome: ArtifactResult) -> Figure:
    """A shade per rule and number of corrupt neighbours, for gradients, differences and the honest sum."""
    rules, counts = outcome.places(0), outcome.places(1)
    with plot_style():
        figure = Figure(figsize=(9.0, 0.34 * len(rules) + 1.2), layout="constrained")
        row = figure.subplots(1, len(ASKED), sharey=True)
        for axes, question in zip(row, ASKED, strict=True):
            shades = np.full((len(rules), len(counts)), np.nan)
            for i, rule in enumerate(rules):
                for j, count in enumerate(counts):
                    if (rule, count) in outcome and (
                        shares := outcome[rule, count].numbers(question)
                    ):
                        shades[i, j] = statistics.fmean(shares)
            axes.imshow(shades, cmap="Blues", vmin=0, vmax=1, aspect="auto")
            for (i, j), share in np.ndenumerate(shades):
                text = "–" if np.isnan(share) else f"{100 * share:.0f}"
                axes.text(
                    j,
                    i,
                    text,
                    ha="center",
                    va="center",
                    color="white" if share > 0.6 else "black",
                    fontsize=8,
                )
            axes.set_xticks(range(len(counts)), counts)
            axes.set_yticks(range(len(rules)), rules)
            axes.set_title(
                {
                    "gradient": "its gradient",
                    "difference": "gradient differences",
                    "sum": "the honest sum",
                }[question]
            )
            axes.set_xlabel("corrupt neighbours of four")
            axes.grid(visible=False)
        figure.suptitle(
            "iterations in which they have it exactly (%); –: the sum is its gradient alone",
            fontsize=10,
        )
    return figure


def _hides(rule: str, corrupt: int, question: Question, hidden: bool) -> Claim:
    what = {
        "gradient": "gradients",
        "difference": "differences of gradients",
        "sum": "the honest sum",
    }[question]
    text = f"{rule}: {corrupt} of 4 neighbours learn {'no' if hidden else 'exact'} {what}"

    def check(outcome: ArtifactResult) -> ClaimVerdict:
        if (rule, str(corrupt)) not in outcome:
            raise Missing(rule)
        share = outcome.mean((rule, str(corrupt)), question)
        word: Word = "reproduced" if (share == 0) == hidden else "not reproduced"
        return ClaimVerdict(word, f"{100 * share:.0f} % of the iterations")

    return Claim(text, "our claim", check)


ARTIFACTS = (
    Artifact(
        name="findings/collusion",
        title="What corrupt neighbours learn together, exactly, for every algorithm on the same graph",
        axes=("algorithm", "corrupt neighbours"),
        cells=_cells,
        metric="leak",
        claims=[
            _hides("dsgt", 1, "gradient", hidden=False),
            _hides("lppa", 1, "gradient", hidden=True),
            _hides("lppa", 1, "difference", hidden=False),
            _hides("lppa, fresh masks", 1, "gradient", hidden=True),
            _hides("lppa, fresh masks", 1, "difference", hidden=True),
            _hides("lppa, fresh masks", 4, "gradient", hidden=False),
            _hides("pdmm", 1, "gradient", hidden=True),
            _hides("pdmm", 4, "difference", hidden=False),
            _hides("defl-vp", 1, "gradient", hidden=False),
            _hides("defl-vp, private variates", 1, "gradient", hidden=True),
        ],
        draw=_draw,
        protocol=(
            "8 clients on a circle, each talking to the next two on both sides, lazy Metropolis weights; the algorithm "
            "is run on symbols and the span of what corrupt neighbours saw and hold is looked at, nothing estimated. "
            "A gradient hidden here may still be estimated with noise"
        ),
        quickly="4 iterations instead of 10",
        repeats=1,
        quick_repeats=1,
        unit="share of iterations",
    ),
)
