"""Finding: what a neighbour, several of them or an eavesdropper computes, exactly.

Eight clients have four neighbours each and start from one model. Every algorithm runs on symbols;
the strongest statement that linear algebra proves about one client's gradients is in the table. Of
several neighbours the worst choice counts. ε is that of the whole run against this adversary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.figure import Figure

from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.threat import Threat
from tacit.auditing.bounds.whole_run import whole_run_bound
from tacit.auditing.statements import StrongestLeak
from tacit.auditing.symbolic.coalitions import worst_coalition
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.leakage import Leakage
from tacit.auditing.symbolic.symbolic_run import SymbolicRun
from tacit.privacy.planning import epsilon_text
from tacit.report.style import GRID, INK, MUTED, plot_style
from tacit_papers.findings.audited_algorithms import (
    CLIENTS,
    DELTA,
    PARAMETERS,
    REACH,
    RULES,
    STEPS,
    four_neighbours,
    on_symbols,
    prepared,
)
from tacit_papers.framework.artifact import Artifact
from tacit_papers.framework.cells import Cell, MeasureContext, Scale, Values, rounded
from tacit_papers.framework.claims import Claim, ClaimVerdict, grade_all
from tacit_papers.framework.results import ArtifactResult, NotMeasured

NEIGHBOURS = 4
ONE, ALL, OTHERS = "one neighbour", "all four", "all other clients"
EAVESDROPPER = "eavesdropper"
SIZES = {ONE: 1, "two": 2, "three": 3, ALL: NEIGHBOURS}
ADVERSARIES = (*SIZES, OTHERS, EAVESDROPPER)
VICTIM = 0
# Shades by the first word of what is learnt, the worst first.
SHADES = {
    "gradients": "#e8743f",
    "differences": "#f9bd78",
    "combinations": "#f9bd78",
    "sums": "#fde9c8",
    "output": "#fde9c8",
    "noisy": "#e3e7ec",
    "nothing": "#ffffff",
}


@dataclass(frozen=True)
class ProvenKnowledge:
    """The most that an adversary provably computes about a client's gradients."""

    algorithm: dict[str, Any] = field(hash=False)
    adversary: str
    iterations: int

    def describe(self) -> dict[str, Any]:
        return {
            "adversary": self.adversary,
            "algorithm": self.algorithm,
            "circulant graph": [CLIENTS, list(REACH)],
            "iterations": self.iterations,
        }

    def __call__(self, seed: int, context: MeasureContext) -> Values:
        run = on_symbols(self.algorithm, four_neighbours(), self.iterations)
        leakage = self._leakage(run)
        gradients = leakage.of("gradient")
        values = {
            "learns": in_words(leakage),
            "gradients": _share(gradients.statuses, "exact"),
            "noisy": _share(gradients.statuses, "noisy"),
            "combinations": leakage.subspace.dimension / max(1, len(leakage.gradients)),
            "models": _share(leakage.of("model").statuses, "exact"),
        }
        if len(leakage.honest_component) > 1:
            values["sums"] = _share(leakage.of("sum").statuses, "exact")
        return values | self._guarantee(run, leakage)

    def _leakage(self, run: SymbolicRun) -> Leakage:
        if self.adversary in SIZES:
            return worst_coalition(run, VICTIM, SIZES[self.adversary]).leakage
        adversary = Adversary.parse("eavesdropper")
        if self.adversary == OTHERS:
            adversary = Adversary.curious(*range(1, CLIENTS))
        return Leakage(Knowledge(run, adversary), VICTIM)

    def _guarantee(self, run: SymbolicRun, leakage: Leakage) -> Values:
        """Whether noisy sums are all that is learnt, and ε of the whole run."""
        graph, adversary = four_neighbours(), leakage.knowledge.adversary
        algorithm = prepared(self.algorithm, graph, self.iterations)
        if not algorithm.keeps_guarantee:
            return {}
        threat = Threat(adversary, VICTIM, None, PARAMETERS, DELTA)
        summed = threat.view(run).only_sum()
        bound = whole_run_bound(algorithm, graph, threat, STEPS)
        values: Values = {"epsilon": None if bound is None else rounded(bound.epsilon)}
        if summed is not None:
            values["summed"] = len(summed)
            others = len(summed) - 1
            values["learns"] = f"noisy sums with {others} others" if others else "noisy gradients"
        if bound is not None:
            values["learns"] = (
                f"{values.get('learns', in_words(leakage))}, ε ≤ {epsilon_text(bound.epsilon)}"
            )
        return values


def in_words(leakage: Leakage) -> str:
    """The strongest exact statement, else what is left under noise."""
    known = StrongestLeak.of(leakage)
    match known.question:
        case None:
            return "nothing"
        case "gradient" | "update" if known.status == "exact":
            return f"gradients, {known.exact} of {known.count}"
        case "difference":
            return f"differences, {known.exact} of {known.count}"
        case "combination" | "group":
            return f"combinations, {known.exact}"
        case "sum":
            return f"sums with {known.others} others"
        case "image":
            return str(known)
    return "noisy gradients"


def _share(statuses: Sequence[str], status: str) -> float:
    return list(statuses).count(status) / max(1, len(statuses))


def _cells(scale: Scale) -> list[Cell]:
    iterations = scale.pick(8, 4)
    return [
        Cell((label, adversary), ProvenKnowledge(rule, adversary, iterations))
        for label, rule in RULES.items()
        for adversary in ADVERSARIES
    ]


def _draw(result: ArtifactResult) -> Figure:
    """The table, shaded by what is learnt."""
    rows, columns = result.labels(0), result.labels(1)
    with plot_style():
        figure = Figure(figsize=(10.0, 0.27 * len(rows) + 0.6), layout="constrained")
        axes = figure.add_subplot()
        axes.set_axis_off()
        axes.set_xlim(-1.35, len(columns))
        axes.set_ylim(len(rows), -1)
        for x, column in enumerate(columns):
            axes.text(x + 0.5, -0.5, column, ha="center", va="center", fontsize=8.5, color=MUTED)
        for y, row in enumerate(rows):
            axes.text(-1.33, y + 0.5, row, va="center", fontsize=8.5, color=INK)
            for x, column in enumerate(columns):
                text = str(result[row, column].first["learns"])
                shade = SHADES[text.replace(",", " ").split()[0]]
                text = text.replace(", ε", ",\nε")
                axes.fill_between([x, x + 1], y, y + 1, color=shade, edgecolor=GRID, linewidth=0.6)
                axes.text(
                    x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=7, linespacing=0.9
                )
    return figure


def _learns(rule: str, adversary: str, metric: str, *, exactly: bool) -> Claim:
    def check(result: ArtifactResult) -> ClaimVerdict:
        share = result.mean((rule, adversary), metric)
        ours = str(result[rule, adversary].first["learns"])
        return ClaimVerdict(grade_all([(share > 0) == exactly]), ours)

    what = f"{'exact' if exactly else 'no exact'} {metric}"
    who = f"{adversary} neighbours" if adversary in ("two", "three", ALL) else adversary
    return Claim(f"{rule}: {what} for {who}", "our claim", check)


def _only_sums(adversary: str, others: int) -> Claim:
    def check(result: ArtifactResult) -> ClaimVerdict:
        if (key := ("private-sgd", adversary)) not in result:
            raise NotMeasured(key)
        values = result[key].first
        return ClaimVerdict(grade_all([values.get("summed") == others + 1]), values["learns"])

    text = f"private-sgd: nothing but noisy sums with {others} others for {adversary}"
    return Claim(text, "our claim", check)


G, C = "gradients", "combinations"
ARTIFACTS = (
    Artifact(
        name="findings/who-computes-what",
        title="What each adversary provably computes about a client's gradients",
        axes=("algorithm", "adversary"),
        cells=_cells,
        metric="gradients",
        claims=[
            _learns("dsgt", ONE, G, exactly=True),
            _learns("defl-vp", ONE, G, exactly=True),
            _learns("defl-vp, private variates", OTHERS, C, exactly=False),
            _learns("lppa", ONE, G, exactly=False),
            _learns("lppa", ONE, C, exactly=True),
            _learns("lppa, fresh masks", "three", C, exactly=False),
            _learns("lppa, fresh masks", ALL, G, exactly=True),
            *(_learns(rule, ONE, G, exactly=True) for rule in ("dsg", "edsg", "d-psgd")),
            *(_learns(rule, ONE, C, exactly=False) for rule in ("pdmm", "admm")),
            *(_learns(rule, "two", C, exactly=True) for rule in ("pdmm", "admm")),
            *(_learns(rule, ALL, G, exactly=True) for rule in ("pdmm", "admm")),
            *(_learns(rule, OTHERS, C, exactly=False) for rule in ("dp-dsgt, every iteration",)),
            *(_learns(rule, OTHERS, C, exactly=False) for rule in ("decor", "private-sgd")),
            _only_sums(ONE, 6),
            _only_sums(EAVESDROPPER, 7),
        ],
        draw=_draw,
        protocol=(
            "8 clients on a circle, each with edges to the next two on both sides, lazy Metropolis "
            "weights, one first model that all know; 8 iterations of each algorithm on symbols. "
            "Exact statements are proved by linear algebra, closed under declared deterministic "
            "steps; what is missing of the newest gradients follows from the next messages. Of "
            "one, two and three neighbours the worst choice. The eavesdropper reads every message "
            "that is not private, inside of TLS. With a server, a neighbour is another client, and "
            "an eavesdropper reads what the server does. ε is per training sample for the whole "
            "run, δ = 10⁻⁵, against this adversary and an eavesdropper together, planned for ε = 3 "
            "against one client with the data and iterations of findings/private-training on MNIST"
        ),
        quickly="4 iterations instead of 8",
        repeats=1,
        unit="share of iterations",
    ),
)
