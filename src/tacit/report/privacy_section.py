"""The section of a report about guarantees: the promise, the budget curve, and coalitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tacit.algorithms import ALGORITHMS
from tacit.privacy.guarantee import UNITS
from tacit.report.coalitions import coalition_sizes, smallest_parts
from tacit.report.finished_run import FinishedRun
from tacit.report.groups import RunGroup
from tacit.report.page import card, facts, grid, of_series, table
from tacit.report.spending import Spending, epsilon_text
from tacit.report.style import (
    FIGURE_WIDTH,
    MUTED,
    label_series,
    legend_label,
    new_figure,
    plot_style,
    series_style,
    svg,
)

# Points of the budget curve.
MOST_POINTS = 40
WIDTH, HEIGHT = FIGURE_WIDTH, 2.8


@dataclass(frozen=True)
class PrivateRun:
    """A run with a promise; its place in the report determines its colour."""

    place: int
    name: str
    run: FinishedRun
    spending: Spending


def privacy_section(groups: Sequence[RunGroup]) -> str:
    """HTML about the runs with a promise, one per group of seeds; "" if there are none."""
    found = [found for place, group in enumerate(groups) if (found := _private_run(place, group))]
    several, html = len(groups) > 1, ""
    for one in found:
        title = f"<strong>{escape(one.name)}</strong>: " if several else ""
        sentences = ". ".join(_capital(line) for line in one.spending.sentences())
        html += of_series(one.place, f"<p>{title}{escape(sentences)}.</p>")
    kept = [one for one in found if one.spending.has_guarantee]
    if not kept:
        return html
    if not several:
        html += _facts(kept[0].spending)
    if curves := [one for one in kept if one.run.history]:
        caption = "ε of the iterations so far. Dashed: the promise."
        figure = svg(budget_figure(curves), "Budget over the rounds", caption)
        html += grid([card("Privacy budget", figure, caption)])
    for one in kept:
        kind = ALGORITHMS.get(one.run.summary.algorithm)
        # Masked messages tell a coalition sums over connected clients only.
        if kind is not None and kind.needs_total:
            html += of_series(one.place, _coalitions(one, f"{one.name}: " if several else ""))
    return html


def _private_run(place: int, group: RunGroup) -> PrivateRun | None:
    run = group.runs[0]
    summary = run.summary
    if summary.privacy is None:
        return None
    spending = Spending.of(summary.privacy.model_dump(), summary.steps, run.clients)
    return PrivateRun(place, group.label, run, spending)


def _facts(spending: Spending) -> str:
    budget = spending.budget
    return facts(
        {
            "Promised ε": f"{budget.epsilon:g}",
            "Spent ε": epsilon_text(spending.spent),
            "δ": f"{budget.delta:g}",
            "Protects": UNITS[budget.unit],
            "Honest clients assumed": f"{budget.honest:,} of {spending.clients:,}",
            "Noise multiplier σ": f"{budget.noise_multiplier:.4g}",
            "Sampling rate": f"{100 * budget.sampling_rate:.3g} %",
        }
    )


@plot_style()
def budget_figure(runs: Sequence[PrivateRun]) -> Figure:
    """ε over rounds for each run, and what each promised."""
    figure, axes = new_figure(WIDTH, HEIGHT)
    for one in runs:
        colour, marker, _ = series_style(one.place)
        history, budget = one.run.history, one.spending.budget
        records = [history[k] for k in _evenly_spaced(len(history))]
        spent = [budget.spent(record.step) if record.step else 0.0 for record in records]
        rounds = [record.round for record in records]
        marker = marker if len(runs) > 1 else ""
        line = {"color": colour, "marker": marker, "markevery": max(1, len(rounds) // 6)}
        axes.plot(rounds, spent, label=legend_label(one.name), gid=f"spent-{one.place}", **line)
        dashed = colour if len(runs) > 1 else MUTED
        promise = {"linestyle": "--", "linewidth": 1, "gid": f"promise-{one.place}"}
        axes.axhline(budget.epsilon, color=dashed, **promise)
    axes.set(xlabel="round", ylabel="ε")
    axes.set_ylim(0, 1.08 * max(one.spending.budget.epsilon for one in runs))
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=(1, 2, 5, 10)))
    if len(runs) > 1:
        legend = figure.legend(loc="outside lower center", ncols=min(3, len(runs)))
        label_series(legend, {legend_label(one.name): one.place for one in runs})
    return figure


def _evenly_spaced(count: int) -> list[int]:
    return sorted(set(np.linspace(0, count - 1, min(count, MOST_POINTS)).round().astype(int)))


def _coalitions(private: PrivateRun, prefix: str) -> str:
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
    text = (
        "<p>A coalition learns the noisy sum of each connected part that is left of the graph "
        "without it. The table has the worst coalition of each size.</p>\n"
    )
    return text + table(header, rows, f"{prefix}ε against coalitions")


def _capital(sentence: str) -> str:
    return sentence if sentence.startswith("ε") else sentence[0].upper() + sentence[1:]
