"""The section of a report about guarantees: the promise, the budget curve, and coalitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import networkx as nx
import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tacit.algorithms import ALGORITHMS
from tacit.privacy.guarantee import UNITS
from tacit.privacy.planning import epsilon_text
from tacit.report.figures import svg
from tacit.report.finished_run import FinishedRun
from tacit.report.groups import RunGroup
from tacit.report.page import Card, Table
from tacit.report.plots import PLACES, places
from tacit.report.rendering import render
from tacit.report.spending import Spending
from tacit.report.style import (
    FIGURE_WIDTH,
    MUTED,
    label_series,
    legend_label,
    new_figure,
    plot_style,
    series_style,
)

# Coalitions of one size that are looked at; more would take long.
MOST_COALITIONS = 5_000
# Clients of graphs whose connectivity is computed.
MOST_CLIENTS = 100
# Sizes that a table has room for.
MOST_SIZES = 12
# Points of the budget curve.
MOST_POINTS = 40
WIDTH, HEIGHT = FIGURE_WIDTH, 2.8


@dataclass(frozen=True)
class PrivateRun:
    """A run with a promise; its number in the report determines its colour."""

    number: int
    name: str
    run: FinishedRun
    spending: Spending


def privacy_section(groups: Sequence[RunGroup]) -> Markup:
    """About the runs with a promise, one per group of seeds; "" if there are none."""
    promised = [
        PrivateRun(number, group.legend, group.runs[0], spending)
        for number, group in enumerate(groups)
        if (spending := group.runs[0].spending) is not None
    ]
    several = len(groups) > 1
    kept = [private for private in promised if private.spending.has_guarantee]
    curves = [private for private in kept if private.run.history]
    caption = "ε of the iterations so far. Dashed: the promise."
    cards = []
    if curves:
        figure = svg(budget_figure(curves), "Budget over the rounds", caption)
        cards.append(Card("Privacy budget", figure, caption))
    return render(
        "privacy.html.jinja",
        several=several,
        runs=[(private.number, private.name, private.spending.sentences()) for private in promised],
        spending=kept[0].spending if kept and not several else None,
        units=UNITS,
        cards=cards,
        coalitions=[
            (private.number, _coalitions(private, f"{private.name}: " if several else ""))
            for private in kept
            if _adds_masked_sums(private.run)
        ],
    )


def _adds_masked_sums(run: FinishedRun) -> bool:
    """Whether a coalition learns sums over connected clients only."""
    kind = ALGORITHMS.get(run.summary.algorithm)
    return kind is not None and kind.needs_total


@plot_style()
def budget_figure(runs: Sequence[PrivateRun]) -> Figure:
    """ε over rounds for each run, and what each promised."""
    figure, axes = new_figure(WIDTH, HEIGHT)
    over = places([private.run.history for private in runs])
    for private in runs:
        colour, marker, _ = series_style(private.number)
        history, budget = private.run.history, private.spending.budget
        records = [history[k] for k in _evenly_spaced(len(history))]
        spent = [budget.spent(record.step) if record.step else 0.0 for record in records]
        rounds = [getattr(record, over) for record in records]
        marker = marker if len(runs) > 1 else ""
        line = {"color": colour, "marker": marker, "markevery": max(1, len(rounds) // 6)}
        axes.plot(
            rounds, spent, label=legend_label(private.name), gid=f"spent-{private.number}", **line
        )
        dashed = colour if len(runs) > 1 else MUTED
        promise = {"linestyle": "--", "linewidth": 1, "gid": f"promise-{private.number}"}
        axes.axhline(budget.epsilon, color=dashed, **promise)
    axes.set(xlabel=PLACES[over], ylabel="ε")
    axes.set_ylim(0, 1.08 * max(private.spending.budget.epsilon for private in runs))
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=(1, 2, 5, 10)))
    if len(runs) > 1:
        legend = figure.legend(loc="outside lower center", ncols=min(3, len(runs)))
        label_series(legend, {legend_label(private.name): private.number for private in runs})
    return figure


def _evenly_spaced(count: int) -> list[int]:
    return sorted(set(np.linspace(0, count - 1, min(count, MOST_POINTS)).round().astype(int)))


def _coalitions(private: PrivateRun, prefix: str) -> Table:
    """A table of ε against the worst coalition of each size."""
    run, budget = private.run, private.spending.budget
    clients = run.clients
    sizes = coalition_sizes(clients, budget.honest)
    parts: dict[int, int | None] = dict.fromkeys(sizes)
    if run.graph.edges is not None:
        parts = smallest_parts(clients, run.graph.edges, sizes)
    rows = []
    for size, left in parts.items():
        name = "none: outsiders" if size == 0 else f"{size:,}"
        if left is None:
            rows.append([name, "not computed", "not computed", ""])
            continue
        epsilon = budget.epsilon_against(left, private.spending.steps)
        kept = "yes" if epsilon <= budget.epsilon else "no"
        rows.append([name, f"{left:,}", epsilon_text(epsilon), kept])
    header = ["Colluding clients", "honest and connected, at least", "ε at most", "promise kept"]
    return Table(header, rows, f"{prefix}ε against coalitions")


def coalition_sizes(clients: int, honest: int) -> list[int]:
    """Sizes of coalitions to show, among them the largest that a promise with `honest` allows."""
    if clients <= MOST_SIZES:
        return list(range(clients))
    promised = clients - honest
    chosen = {0, 1, 2, 3, 4, promised, clients - 1} | {clients * part // 4 for part in (1, 2, 3)}
    return sorted(size for size in chosen if size < clients)


def smallest_parts(
    clients: int, edges: Iterable[tuple[int, int]], sizes: Iterable[int]
) -> dict[int, int | None]:
    """By size of a coalition, the fewest honest clients that it can leave connected.

    None means not computed, because there are too many coalitions.

    Example:
        >>> ring = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]
        >>> smallest_parts(5, ring, range(5))
        {0: 5, 1: 4, 2: 1, 3: 1, 4: 1}
    """
    graph = nx.empty_graph(clients)
    graph.add_edges_from(edges)
    least_degree = min(degree for _, degree in graph.degree)
    connectivity = _connectivity(graph)

    def smallest(size: int) -> int | None:
        # Fewer than the connectivity cut nothing off; all neighbours of a client cut it off.
        if size < connectivity:
            return clients - size
        if size >= least_degree:
            return 1
        if comb(clients, size) > MOST_COALITIONS:
            return None
        return min(
            min(map(len, nx.connected_components(graph.subgraph(set(graph) - set(coalition)))))
            for coalition in combinations(graph, size)
        )

    return {size: smallest(size) for size in sizes}


def _connectivity(graph: nx.Graph) -> int:
    """The fewest clients without which the graph falls apart, or at least a lower bound of it."""
    if not nx.is_connected(graph):
        return 0
    if len(graph) <= MOST_CLIENTS:
        return int(nx.node_connectivity(graph))
    return 2 if nx.is_biconnected(graph) else 1
