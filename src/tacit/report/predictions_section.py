"""What models predict: confusion matrices and each client's metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from tacit.report.figures import csv_text, svg
from tacit.report.finished_run import FinishedRun, StoredConfusion
from tacit.report.groups import RunGroup, owner_of
from tacit.report.measures import OWN_TEST, format_metric, metric_title
from tacit.report.page import Card, Cell, Table, counts_table
from tacit.report.rendering import render
from tacit.report.style import (
    FIGURE_WIDTH,
    INK,
    PALETTE,
    new_figure,
    plot_style,
    short_name,
    slanted,
)

MAX_MATRICES = 6  # of several runs
MAX_NUMBERED_CLASSES = 12  # cells of more have no room for a number
MAX_CLIENT_ROWS = 60
# The strongest colour of a cell, below which its number stays readable, light and dark.
STRONGEST = 0.55
RIGHT, WRONG = PALETTE[0], PALETTE[1]


def predictions_section(groups: Sequence[RunGroup]) -> Markup:
    """Confusion matrices and tables of clients of the groups' first runs; "" without any."""
    shown = [
        (number, owner_of(group, group.runs[0], groups), group.runs[0])
        for number, group in enumerate(groups)
    ]
    cards = [
        replace(confusion_card(run.summary.confusion, owner), series=number)
        for number, owner, run in shown
        if run.summary.confusion is not None
    ]
    tables = [
        (number, _client_table(run, owner), _clients_left_out(run))
        for number, owner, run in shown[:MAX_MATRICES]
        if run.last.per_client
    ]
    left_out = len(cards) - MAX_MATRICES
    return render("cards.html.jinja", tables=tables, cards=cards[:MAX_MATRICES], left_out=left_out)


def confusion_card(confusion: StoredConfusion, owner: str = "") -> Card:
    """A confusion matrix, drawn and as numbers."""
    models = "one model" if confusion.models == 1 else f"the models of {confusion.models} clients"
    caption = (
        f"Predictions of {models} on the test set. Each row is a class and adds up to 100 %."
        " Blue: right. Orange: wrong."
    )
    title = f"{owner}confusion matrix" if owner else "Confusion matrix"
    predictions = [f"as {name}" for name in confusion.classes]
    counted = list(zip(confusion.classes, confusion.counts, strict=True))
    data = csv_text(("class", *predictions), ((name, *counts) for name, counts in counted))
    figure = svg(confusion_figure(confusion), title, caption, data=data)
    numbers = counts_table("class", predictions, counted)
    return Card(title, figure, caption, "square", numbers=numbers)


@plot_style()
def confusion_figure(confusion: StoredConfusion) -> Figure:
    """Shares of the predictions of each class; rows add up to 100 %."""
    counts = np.array(confusion.counts, dtype=np.float64)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    classes = len(counts)
    numbered = classes <= MAX_NUMBERED_CLASSES
    size = min(FIGURE_WIDTH, max(3.4, 1.8 + 0.3 * classes))
    figure, axes = new_figure(size, size - 0.2)
    axes.grid(False)
    for row, column in zip(*np.nonzero(counts), strict=True):
        share = float(shares[row, column])
        colour = RIGHT if row == column else WRONG
        corner = (column - 0.5, row - 0.5)
        alpha = STRONGEST * share**0.5
        axes.add_patch(Rectangle(corner, 1, 1, facecolor=colour, alpha=alpha, linewidth=0))
        if numbered:
            text = f"{100 * share:.0f}" if share >= 0.01 else "<1"
            style = {"ha": "center", "va": "center", "color": INK, "fontsize": 9}
            axes.text(column, row, text, **style)
    axes.set(xlim=(-0.5, classes - 0.5), ylim=(classes - 0.5, -0.5), aspect="equal")
    step = -(-classes // 25)
    ticks = np.arange(0, classes, step)
    names = [short_name(confusion.classes[k]) for k in ticks]
    axes.set_xticks(ticks, names, **slanted(names))
    axes.set_yticks(ticks, names)
    axes.set(xlabel="prediction", ylabel="class")
    return figure


def _clients_of(run: FinishedRun) -> list[int]:
    return [int(number) for number in run.last.per_client.get("client", ())]


def _clients_left_out(run: FinishedRun) -> int:
    return len(_clients_of(run)) - MAX_CLIENT_ROWS


def _client_table(run: FinishedRun, owner: str) -> Table:
    """Each client's metrics, on the common test set and on its own."""
    columns = run.last.per_client
    names = [name for name in columns if name not in ("client", "loss", f"{OWN_TEST}loss")]
    # A metric on the client's own test set stands beside the one on the common test set.
    metrics = dict.fromkeys(["accuracy", "baseline", *(n.removeprefix(OWN_TEST) for n in names)])
    ordered = [column for name in metrics for column in (name, OWN_TEST + name) if column in names]
    rows = [
        [
            run.graph.name_of(client),
            *(_cell(columns[name], row, name) for name in ordered),
        ]
        for row, client in enumerate(_clients_of(run)[:MAX_CLIENT_ROWS])
    ]
    header = ["client", *(_column_title(name) for name in ordered)]
    return Table(header, rows, f"{owner}each client's model" if owner else "Each client's model")


def _column_title(name: str) -> Cell:
    title = metric_title(name.removeprefix(OWN_TEST))
    return [f"{title},", "own test set"] if name.startswith(OWN_TEST) else title


def _cell(values: Sequence[float], row: int, name: str) -> str:
    value = values[row] if row < len(values) else None
    return format_metric(value, name)
