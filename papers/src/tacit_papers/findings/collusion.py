"""Finding: which coalitions compute whose gradients, for all coalitions on small graphs.

Every set of one to n − 1 of n clients pools what its members send, receive and hold, and every
client outside of it is a victim. The algorithm runs on symbols, and linear algebra proves whether a
gradient of the victim, or any combination of its gradients alone, is in the span of all that. Pairs
of coalition and victim are counted by where the coalition is: it has none of the victim's
neighbours, some, or all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import networkx as nx
import numpy as np
from matplotlib.figure import Figure

from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.threat import Threat
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.leakage import Leakage
from tacit.auditing.symbolic.symbolic_run import SymbolicRun
from tacit.graph import Graph, Topology
from tacit.report.style import plot_style
from tacit_papers.findings.audited_algorithms import RULES, on_symbols
from tacit_papers.framework.artifact import Artifact
from tacit_papers.framework.cells import Cell, Key, MeasureContext, Scale, Values
from tacit_papers.framework.claims import ClaimVerdict, claim, grade_all
from tacit_papers.framework.results import ArtifactResult, NotMeasured

CLIENTS = 6
POSITIONS = ("none", "some", "all")
GRAPHS = ("ring", "star", "complete", "Erdős–Rényi")
DENSITY, GRAPH_SEED = 0.5, 1
RING = "ring"
# d-psgd exchanges what dsg does, and push-sum is for directed graphs.
COMPARED = {label: rule for label, rule in RULES.items() if label not in ("d-psgd", "push-sum")}


def graph_named(name: str) -> Graph:
    made = {
        "ring": lambda: nx.cycle_graph(CLIENTS),
        "star": lambda: nx.star_graph(CLIENTS - 1),
        "complete": lambda: nx.complete_graph(CLIENTS),
        "Erdős–Rényi": lambda: nx.gnp_random_graph(CLIENTS, DENSITY, seed=GRAPH_SEED),
    }[name]()
    return Topology.from_edges(list(made.edges), CLIENTS).mixing("metropolis", lazy=True)


@dataclass(frozen=True)
class CoalitionKnowledge:
    """Shares of pairs of coalition and victim in which something is computed exactly.

    `gradient`, `combination`: by the position of the coalition, over all sizes; `by_size`: for each
    size, over all pairs. `exposed`: gradients, over all pairs. `only_sums`: nothing but noisy sums
    over the victim's honest component is learnt.
    """

    algorithm: dict[str, Any] = field(hash=False)
    graph: str
    iterations: int

    def describe(self) -> dict[str, Any]:
        return {
            "graph": self.graph,
            "edges": [list(edge) for edge in _pairs(graph_named(self.graph))],
            "algorithm": self.algorithm,
            "iterations": self.iterations,
        }

    def __call__(self, seed: int, context: MeasureContext) -> Values:
        graph = graph_named(self.graph)
        run = on_symbols(self.algorithm, graph, self.iterations)
        found = list(_pairs_of(run, graph))
        values: Values = {
            "pairs": len(found),
            "exposed": _share([one.gradient for one in found]),
            "only_sums": _share([one.only_sum for one in found]),
        }
        for name in ("gradient", "combination"):
            for position in POSITIONS:
                here = [getattr(one, name) for one in found if one.position == position]
                if here:
                    values[f"{name}_{position}"] = _share(here)
            values[f"{name}_by_size"] = [
                _share([getattr(one, name) for one in found if one.size == size])
                for size in range(1, CLIENTS)
            ]
        return values


@dataclass(frozen=True)
class _Pair:
    size: int
    position: str
    gradient: bool
    combination: bool
    only_sum: bool


def _pairs_of(run: SymbolicRun, graph: Graph) -> Iterator[_Pair]:
    """All coalitions, each with every client outside of it."""
    near = nx.Graph(_pairs(graph))
    for size in range(1, CLIENTS):
        for coalition in combinations(range(CLIENTS), size):
            adversary = Adversary.curious(*coalition)
            knowledge = Knowledge(run, adversary)
            for victim in sorted(set(range(CLIENTS)) - set(coalition)):
                leakage = Leakage(knowledge, victim)
                met = len(set(near[victim]) & set(coalition))
                position = "none" if not met else "all" if met == len(near[victim]) else "some"
                rows = Threat(adversary, victim).view(run)
                yield _Pair(
                    size,
                    position,
                    bool(knowledge.exact(leakage.of("gradient").vectors).any()),
                    leakage.subspace.dimension > 0,
                    bool(run.samplings) and rows.only_sum() is not None,
                )


def _pairs(graph: Graph) -> list[tuple[int, int]]:
    return sorted({(int(min(edge)), int(max(edge))) for edge in graph.edges.tolist()})


def _share(found: list[bool]) -> float:
    return sum(found) / max(1, len(found))


def _cells(scale: Scale) -> list[Cell]:
    iterations = scale.pick(5, 3)
    return [
        Cell((graph, label), CoalitionKnowledge(rule, graph, iterations))
        for graph in scale.pick(GRAPHS, (RING,))
        for label, rule in COMPARED.items()
    ]


def _draw(result: ArtifactResult) -> Figure:
    """A panel per graph: a shade per algorithm and size of the coalition."""
    rules = list(COMPARED)
    with plot_style():
        figure = Figure(figsize=(10.5, 0.28 * len(rules) + 1.2), layout="constrained")
        row = figure.subplots(1, len(result.labels(0)), sharey=True, squeeze=False)[0]
        for axes, graph in zip(row, result.labels(0), strict=True):
            found, parts = (
                np.array([_by_size(result, (graph, rule), name) for rule in rules])
                for name in ("gradient", "combination")
            )
            axes.imshow(
                np.maximum(found, 0.3 * parts), cmap="Oranges", vmin=0, vmax=1, aspect="auto"
            )
            for (i, j), share in np.ndenumerate(found):
                style = {"color": "white" if share > 0.6 else "black", "fontsize": 7.5}
                axes.text(
                    j, i, _percent(share, float(parts[i, j])), ha="center", va="center", **style
                )
            axes.set_xticks(range(CLIENTS - 1), [str(size) for size in range(1, CLIENTS)])
            axes.set_yticks(range(len(rules)), rules)
            axes.set_title(graph)
            axes.set_xlabel("clients that collude")
            axes.grid(visible=False)
        title = "honest clients of which a coalition computes exact gradients, %"
        title += " (in brackets: no gradient, but combinations of its gradients)"
        figure.suptitle(title, fontsize=10)
    return figure


def _by_size(result: ArtifactResult, key: Key, name: str) -> list[float]:
    if key not in result:
        return [0.0] * (CLIENTS - 1)
    return list(result[key].first[f"{name}_by_size"])


def _percent(gradients: float, combinations: float) -> str:
    if gradients:
        return f"{100 * gradients:.0f}"
    return f"({100 * combinations:.0f})" if combinations else ""


@claim
def _shares(result: ArtifactResult, rule: str, wanted: dict[str, float]) -> ClaimVerdict:
    """The shares at these positions, on all graphs, are 0 or 1 as they should be."""
    # On a complete graph no coalition is away from a victim.
    graphs = [
        all(cell.first.get(name, share) == share for name, share in wanted.items())
        for cell in result.measured
        if cell.key[1] == rule
    ]
    if not graphs:
        raise NotMeasured(rule)
    return ClaimVerdict(grade_all(graphs), f"on {sum(graphs)} of {len(graphs)} graphs")


SURROUNDED = {"gradient_all": 1.0, "gradient_some": 0.0, "gradient_none": 0.0}
NOTHING = {
    f"{name}_{position}": 0.0 for name in ("gradient", "combination") for position in POSITIONS
}
OURS = "our claim"
ARTIFACTS = (
    Artifact(
        name="findings/collusion",
        title="Whose gradients a coalition computes: all coalitions on small graphs",
        axes=("graph", "algorithm"),
        cells=_cells,
        metric="exposed",
        claims=[
            *(
                _shares(
                    f"{rule}: gradients are computed if and only if all neighbours collude",
                    OURS,
                    rule,
                    SURROUNDED,
                )
                for rule in ("lppa", "lppa, fresh masks", "pdmm", "admm")
            ),
            _shares(
                "lppa, fresh masks: some neighbours compute no combination of gradients",
                OURS,
                "lppa, fresh masks",
                {"combination_some": 0.0},
            ),
            *(
                _shares(
                    f"{rule}: one neighbour is enough",
                    OURS,
                    rule,
                    {"gradient_some": 1.0, "gradient_all": 1.0},
                )
                for rule in ("dsgt", "dsg", "defl-vp")
            ),
            *(
                _shares(
                    f"{rule}: no coalition computes anything exactly", OURS, rule, dict(NOTHING)
                )
                for rule in ("dp-dsgt, every iteration", "decor", "private-sgd")
            ),
            _shares(
                "private-sgd: every coalition learns noisy sums over honest components, no more",
                OURS,
                "private-sgd",
                {"only_sums": 1.0},
            ),
        ],
        draw=_draw,
        protocol=(
            "6 clients on a ring, a star, a complete graph and an Erdős–Rényi graph with "
            f"p = {DENSITY:g}, lazy Metropolis weights, one first model that all know; all 62 "
            "coalitions of 1 to 5 clients, each against every client outside of it; 5 iterations "
            "of each algorithm on symbols. Exact statements are proved by linear algebra, closed "
            "under declared deterministic steps; nothing is estimated. private-sgd and decor with "
            "ε = 3. "
            "What is not computed exactly may still be estimated under noise"
        ),
        quickly="the ring, 3 iterations",
        repeats=1,
        unit="share of pairs",
    ),
)
