"""Finding: how much colluding neighbours learn, for every algorithm on the same graph.

Eight clients have four neighbours each; k of the victim's neighbours pool what they know, and every
choice of k is examined. All clients start from one model. The algorithm runs on symbols, and linear
algebra proves which combinations of the victim's gradients are in the span of what they saw and
hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from tacit.auditing.adversary import Adversary
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.leakage import Leakage, Question
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.config.options import make_algorithm
from tacit.graph import Graph, Topology
from tacit.report.style import plot_style
from tacit_papers.framework.artifact import Artifact
from tacit_papers.framework.cells import Cell, MeasureContext, Scale, Values
from tacit_papers.framework.claims import Claim, ClaimVerdict, grade_all
from tacit_papers.framework.results import ArtifactResult, NotMeasured

CLIENTS, REACH = 8, (1, 2)  # a circle with edges to the next two clients on both sides
NEIGHBOURS = (1, 2, 6, 7)  # of client 0, the victim
MASKS = {"lr": 0.05, "noise": {"law": "laplace", "scale": 0.025}}
PLAIN = ("d-psgd", "dsg", "edsg", "dsg-rms", "edsg-rms", "dsgt-rms", "psgt", "mdsg", "pd-lms")
RULES: dict[str, dict[str, Any]] = {
    "dsgt": {"name": "dsgt", "lr": 0.05},
    "dp-dsgt": {"name": "dp-dsgt", **MASKS},
    "dp-dsgt, every iteration": {"name": "dp-dsgt", "inject": "every", **MASKS},
    "lppa": {"name": "lppa", **MASKS},
    "lppa, fresh masks": {"name": "lppa", "fresh": True, **MASKS},
    **{name: {"name": name, "lr": 0.05} for name in PLAIN},
    "defl-vp": {"name": "defl-vp", "lr": 0.05},
    "defl-vp, private variates": {"name": "defl-vp", "lr": 0.05, "private_variates": True},
    "pdmm": {"name": "pdmm", "noise": {"law": "gaussian", "scale": 1.0}},
    "admm": {"name": "admm", "noise": {"law": "gaussian", "scale": 1.0}},
}
# Titles of panels, and words in claims.
QUESTIONS: dict[Question, tuple[str, str]] = {
    "gradient": ("its gradient", "gradients"),
    "combination": ("combinations of gradients", "combinations of gradients"),
    "sum": ("the honest sum", "the honest sum"),
}


@dataclass(frozen=True)
class CollusionKnowledge:
    """The share of iterations in which k neighbours know something exactly, or with noise."""

    algorithm: dict[str, Any] = field(hash=False)
    corrupt: int
    iterations: int

    def describe(self) -> dict[str, Any]:
        return {
            "colluding neighbours": self.corrupt,
            "algorithm": self.algorithm,
            "circulant graph": [CLIENTS, list(REACH)],
            "iterations": self.iterations,
        }

    def __call__(self, seed: int, context: MeasureContext) -> Values:
        options = {key: value for key, value in self.algorithm.items() if key != "name"}
        algorithm = make_algorithm(self.algorithm["name"], options, 1, self.iterations)
        run = run_on_symbols(algorithm, _graph(), self.iterations, common_start=True)
        worst: dict[str, float] = {}
        for coalition in combinations(NEIGHBOURS, self.corrupt):
            leakage = Leakage(Knowledge(run, Adversary.curious(*coalition)), 0)
            statuses = leakage.of("gradient").statuses
            shares = {
                "gradient": _share_of(statuses, "exact"),
                "gradient_noisy": _share_of(statuses, "noisy"),
                "combination": leakage.subspace.dimension / max(1, len(leakage.gradients)),
            }
            if len(leakage.honest_component) > 1:
                shares["sum"] = _share_of(leakage.of("sum").statuses, "exact")
            for name, share in shares.items():
                worst[name] = max(worst.get(name, 0.0), share)
        return {**worst, "leak": worst["combination"]}


def _share_of(statuses: Sequence[str], status: str) -> float:
    return list(statuses).count(status) / max(1, len(statuses))


def _graph() -> Graph:
    pairs = [(i, (i + step) % CLIENTS) for i in range(CLIENTS) for step in REACH]
    return Topology.from_edges(pairs, CLIENTS).mixing("metropolis", lazy=True)


def _cells(scale: Scale) -> list[Cell]:
    iterations = scale.pick(10, 4)
    return [
        Cell((label, str(k)), CollusionKnowledge(rule, k, iterations))
        for label, rule in RULES.items()
        for k in range(1, len(NEIGHBOURS) + 1)
    ]


def _draw(result: ArtifactResult) -> Figure:
    """A shade per rule and number of corrupt neighbours, for each kind of knowledge."""
    rules, counts = result.labels(0), result.labels(1)
    with plot_style():
        figure = Figure(figsize=(9.0, 0.34 * len(rules) + 1.2), layout="constrained")
        row = figure.subplots(1, len(QUESTIONS), sharey=True)
        for axes, (question, (title, _)) in zip(row, QUESTIONS.items(), strict=True):
            shades = np.array(
                [[_share(result, rule, count, question) for count in counts] for rule in rules]
            )
            axes.imshow(shades, cmap="Blues", vmin=0, vmax=1, aspect="auto")
            for (i, j), share in np.ndenumerate(shades):
                text = "–" if np.isnan(share) else f"{100 * share:.0f}"
                style = {"color": "white" if share > 0.6 else "black", "fontsize": 8}
                axes.text(j, i, text, ha="center", va="center", **style)
            axes.set_xticks(range(len(counts)), counts)
            axes.set_yticks(range(len(rules)), rules)
            axes.set_title(title)
            axes.set_xlabel("corrupt neighbours of four")
            axes.grid(visible=False)
        title = "share known exactly by the worst coalition (%); –: the sum is its gradient alone"
        figure.suptitle(title, fontsize=10)
    return figure


def _share(result: ArtifactResult, rule: str, count: str, question: str) -> float:
    try:
        return result.mean((rule, count), question)
    except NotMeasured:
        return np.nan


def _learns(rule: str, corrupt: int, question: Question, *, exactly: bool) -> Claim:
    def check(result: ArtifactResult) -> ClaimVerdict:
        share = result.mean((rule, str(corrupt)), question)
        ours = f"{100 * share:.0f} % of the iterations"
        return ClaimVerdict(grade_all([(share > 0) == exactly]), ours)

    what = f"{'exact' if exactly else 'no'} {QUESTIONS[question][1]}"
    return Claim(f"{rule}: {corrupt} of 4 neighbours learn {what}", "our claim", check)


ARTIFACTS = (
    Artifact(
        name="findings/collusion",
        title="What corrupt neighbours learn together, exactly, for every algorithm on one graph",
        axes=("algorithm", "corrupt neighbours"),
        cells=_cells,
        metric="leak",
        claims=[
            _learns("dsgt", 1, "gradient", exactly=True),
            _learns("lppa", 1, "gradient", exactly=False),
            _learns("lppa", 1, "combination", exactly=True),
            _learns("lppa, fresh masks", 1, "gradient", exactly=False),
            _learns("lppa, fresh masks", 1, "combination", exactly=False),
            *(_learns(rule, 2, "gradient", exactly=True) for rule in ("dsg", "edsg", "d-psgd")),
            *(_learns(rule, 2, "combination", exactly=True) for rule in ("pdmm", "admm")),
            *(_learns(rule, 1, "combination", exactly=False) for rule in ("pdmm", "admm")),
            _learns("lppa, fresh masks", 4, "gradient", exactly=True),
            _learns("pdmm", 1, "gradient", exactly=False),
            _learns("pdmm", 4, "gradient", exactly=True),
            _learns("defl-vp", 1, "gradient", exactly=True),
            _learns("defl-vp, private variates", 1, "gradient", exactly=False),
        ],
        draw=_draw,
        protocol=(
            "8 clients on a circle, each with edges to the next two on both sides, lazy Metropolis "
            "weights, one initial model for all; every choice of k neighbours; the algorithm runs "
            "on symbols, and the span of what corrupt neighbours saw "
            "and hold is examined, nothing is estimated. A gradient hidden here may still be "
            "estimated with noise"
        ),
        quickly="4 iterations instead of 10",
        repeats=1,
        unit="share of iterations",
    ),
)
