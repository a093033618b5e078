"""Figures of an audit: who learns what from whom, what is known when, pictures beside originals, and ROC curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from torch import Tensor

from tacit.auditing.attacks.membership_attacks import MembershipResult
from tacit.auditing.attacks.reconstruction_attacks import ReconstructionResult
from tacit.auditing.symbolic.exposure import LEVELS, MEANING, Exposure
from tacit.auditing.symbolic.leakage import QUESTIONS, Leakage
from tacit.report.style import GRID, INK, MUTED, PALETTE, PAPER, series_style, plot_style

LEVEL_COLOURS = dict(
    zip(LEVELS, (GRID, PALETTE[4], PALETTE[5], PALETTE[3], PALETTE[1]), strict=True)
)
STATUS_COLOURS = {"exact": PALETTE[1], "noisy": PALETTE[4], "hidden": GRID}
STATUS_WORDS = {"exact": "known exactly", "noisy": "known with noise", "hidden": "not known"}
NUMBERED = 16  # clients up to which cells of the heat map say how much noise is left
PICTURES = 10  # samples shown of an attack


def exposure_figure(exposure: Exposure) -> Figure:
    """A cell per pair: what the client of the row learns of the gradients of the client of the column."""
    levels = exposure.levels
    clients = len(levels)
    with plot_style():
        figure = Figure(figsize=(5.6, 5.6), layout="constrained")
        axes = figure.add_subplot()
        axes.grid(False)
        for row in range(clients):
            for column in range(clients):
                level = int(levels[row, column])
                colour = PAPER if level < 0 else LEVEL_COLOURS[LEVELS[level]]
                axes.add_patch(
                    Rectangle(
                        (column - 0.47, row - 0.47), 0.94, 0.94, facecolor=colour, edgecolor="none"
                    )
                )
                deviation = float(exposure.deviations[row, column])
                if clients <= NUMBERED and level >= 0 and 0 < deviation < np.inf:
                    axes.text(
                        column,
                        row,
                        f"{deviation:.2g}",
                        ha="center",
                        va="center",
                        fontsize=8,
                        color=INK,
                    )
        axes.set_xlim(-0.5, clients - 0.5)
        axes.set_ylim(clients - 0.5, -0.5)
        axes.set_aspect("equal")
        axes.set_xlabel("victim")
        axes.set_ylabel("curious client")
        step = max(1, clients // 15)
        axes.set_xticks(range(0, clients, step))
        axes.set_yticks(range(0, clients, step))
        present = [level for level in reversed(LEVELS) if (levels == LEVELS.index(level)).any()]
        handles = [Patch(facecolor=LEVEL_COLOURS[level], label=MEANING[level]) for level in present]
        figure.legend(handles=handles, loc="outside lower center", ncols=1)
    return figure


def timeline_figure(found: Leakage) -> Figure:
    """A row per question, a cell per iteration: exact, noisy or hidden."""
    with plot_style():
        figure = Figure(figsize=(5.6, 2.2), layout="constrained")
        axes = figure.add_subplot()
        axes.grid(False)
        asked = [question for question in QUESTIONS if found.of(question).when]
        for row, question in enumerate(asked):
            series = found.of(question)
            for when, status in zip(series.when, series.statuses, strict=True):
                cell = Rectangle(
                    (when - 0.46, row - 0.4),
                    0.92,
                    0.8,
                    facecolor=STATUS_COLOURS[status],
                    edgecolor="none",
                )
                axes.add_patch(cell)
        last = max(max(found.of(question).when) for question in asked)
        axes.set_xlim(-0.6, last + 0.6)
        axes.set_ylim(len(asked) - 0.5, -0.5)
        axes.set_yticks(range(len(asked)), asked)
        axes.set_xlabel("iteration, or number of the batch")
        handles = [
            Patch(facecolor=STATUS_COLOURS[s], label=STATUS_WORDS[s]) for s in STATUS_COLOURS
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


def can_show(attack: ReconstructionResult) -> bool:
    """Whether the samples are pictures: grey or in colour."""
    shape = attack.truth.shape[2:]
    return len(shape) == 3 and shape[0] in (1, 3)


def pictures_figure(attack: ReconstructionResult) -> Figure:
    """Originals above, reconstructions below, in the order that fits best."""
    from tacit.auditing.scoring.matching import match, reorder

    order = match(attack.guess.double(), attack.truth.double())
    guess = reorder(attack.guess, order).flatten(0, 1)[:PICTURES]
    truth = attack.truth.flatten(0, 1)[:PICTURES]
    count = len(truth)
    columns = max(count, 6)  # so that one picture is not as large as six
    with plot_style():
        figure = Figure(figsize=(0.75 * columns + 0.9, 1.9), layout="constrained")
        grid = figure.subplots(2, columns, squeeze=False)
        for row in grid:
            for axes in row[count:]:
                axes.set_axis_off()
        for row, (name, samples) in enumerate((("original", truth), ("attack", guess))):
            for column in range(count):
                axes = grid[row][column]
                axes.set_xticks([])
                axes.set_yticks([])
                axes.grid(False)
                _show(axes, samples[column], float(truth.min()), float(truth.max()))
            grid[row][0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9)
    return figure


def roc_figure(memberships: Sequence[MembershipResult]) -> Figure:
    """True positives over false positives of every score."""
    with plot_style():
        figure = Figure(figsize=(4.6, 4.4), layout="constrained")
        axes = figure.add_subplot()
        axes.plot([0, 1], [0, 1], color=MUTED, linestyle=":", linewidth=1)
        for number, one in enumerate(memberships):
            colour, _, _ = series_style(number)
            axes.plot(
                one.roc.fpr, one.roc.tpr, color=colour, label=f"{one.score}: AUC {one.roc.auc:.2f}"
            )
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        axes.set_aspect("equal")
        axes.set_xlabel("false positives")
        axes.set_ylabel("true positives")
        axes.legend(loc="lower right")
    return figure


def _show(axes: Any, sample: Tensor, low: float, high: float) -> None:
    picture = sample.double().clamp(low, high).sub(low).div(max(high - low, 1e-12)).numpy()
    if len(picture) == 1:
        grey = ListedColormap([str(level) for level in np.linspace(0, 1, 256)])
        axes.imshow(picture[0], cmap=grey, vmin=0, vmax=1, interpolation="nearest")
    else:
        axes.imshow(picture.transpose(1, 2, 0), interpolation="nearest")
