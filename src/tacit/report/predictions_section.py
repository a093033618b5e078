"""What models predict: confusion matrices, each client's metrics, and why an accuracy misleads."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from tacit.report.figure_data import csv_text
from tacit.report.finished_run import FinishedRun, StoredConfusion
from tacit.report.groups import RunGroup
from tacit.report.metric_names import OWN_TEST, metric_form, metric_title, metric_unit
from tacit.report.page import card, collapsible, format_number, grid, of_series, table
from tacit.report.style import (
    FIGURE_WIDTH,
    INK,
    PALETTE,
    new_figure,
    plot_style,
    short_name,
    slanted,
    svg,
)

MAX_MATRICES = 6  # of several runs
MAX_NUMBERED_CLASSES = 12  # cells of more have no room for a number
MAX_CLIENT_ROWS = 60
# The strongest colour of a cell, below which its number stays readable, light and dark.
STRONGEST = 0.55
RIGHT, WRONG = PALETTE[0], PALETTE[1]


def accuracy_warnings(groups: Sequence[RunGroup]) -> str:
    """Boxes that say why an accuracy misleads; "" if none does."""
    return "".join(
        warning_box(run.summary.alerts, _owner(group, run, groups))
        for group in groups
        for run in group.runs
    )


def warning_box(alerts: Sequence[str], owner: str = "") -> str:
    """A box with sentences that say why an accuracy misleads; "" if there are none."""
    if not alerts:
        return ""
    items = "".join(f"<p>{escape(alert)}</p>" for alert in alerts)
    return (
        f'<div class="box warning" role="alert"><p><strong>{escape(owner)}The accuracy misleads.'
        f"</strong></p>{items}</div>\n"
    )


def predictions_section(groups: Sequence[RunGroup]) -> str:
    """Confusion matrices and tables of clients of the groups' first runs; "" without any."""
    shown = [(place, group, group.runs[0]) for place, group in enumerate(groups)]
    cards = [
        of_series(place, confusion_card(run.summary.confusion, _owner(group, run, groups)))
        for place, group, run in shown
        if run.summary.confusion is not None
    ]
    tables = "".join(
        of_series(place, _client_table(run, _owner(group, run, groups)))
        for place, group, run in shown[:MAX_MATRICES]
        if run.summary.per_client
    )
    more = len(cards) - MAX_MATRICES
    left_out = f"<p>{more} more confusion matrices are not shown.</p>\n" if more > 0 else ""
    return tables + grid(cards[:MAX_MATRICES]) + left_out


def _owner(group: RunGroup, run: FinishedRun, groups: Sequence[RunGroup]) -> str:
    return "" if len(groups) == len(group.runs) == 1 else f"{group.name_of(run)}: "


def confusion_card(confusion: StoredConfusion, owner: str = "") -> str:
    """A confusion matrix, drawn and as numbers."""
    models = "one model" if confusion.models == 1 else f"the models of {confusion.models} clients"
    caption = (
        f"Predictions of {models} on the test set. Each row is a class and adds up to 100 %."
        " Blue: right. Orange: wrong."
    )
    title = f"{owner}confusion matrix" if owner else "Confusion matrix"
    counted = csv_text(
        ("class", *(f"as {name}" for name in confusion.classes)),
        ((name, *counts) for name, counts in zip(confusion.classes, confusion.counts, strict=True)),
    )
    figure = svg(confusion_figure(confusion), title, caption, data=counted)
    rows = [
        [escape(name), *(f"{count:,}" for count in counts), f"{sum(counts):,}"]
        for name, counts in zip(confusion.classes, confusion.counts, strict=True)
    ]
    header = ["class", *(f"as {escape(name)}" for name in confusion.classes), "all"]
    numbers = collapsible("As numbers", table(header, rows))
    return card(title, figure + numbers, caption, square=True)


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


def _client_table(run: FinishedRun, owner: str) -> str:
    """Each client's metrics, on the common test set and on its own."""
    columns = run.summary.per_client
    clients = [int(number) for number in columns.get("client", []) if number is not None]
    names = [name for name in columns if name not in ("client", "loss", f"{OWN_TEST}loss")]
    # A metric on the client's own test set stands beside the one on the common test set.
    metrics = dict.fromkeys(["accuracy", "baseline", *(n.removeprefix(OWN_TEST) for n in names)])
    ordered = [one for name in metrics for one in (name, OWN_TEST + name) if one in names]
    rows = [
        [
            escape(run.graph.name_of(client)),
            *(_cell(columns[name], place, name) for name in ordered),
        ]
        for place, client in enumerate(clients[:MAX_CLIENT_ROWS])
    ]
    header = ["client", *(_column_title(name) for name in ordered)]
    html = table(header, rows, f"{owner}each client's model" if owner else "Each client's model")
    more = len(clients) - MAX_CLIENT_ROWS
    return html + (f"<p>{more} more are in summary.json.</p>\n" if more > 0 else "")


def _column_title(name: str) -> str:
    title = escape(metric_title(name.removeprefix(OWN_TEST)))
    return f"{title},<br>own test set" if name.startswith(OWN_TEST) else title


def _cell(values: Sequence[float | None], place: int, name: str) -> str:
    value = values[place] if place < len(values) else None
    return format_number(value, metric_form(name), metric_unit(name))
