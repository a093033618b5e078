"""Figures of an audit: exposure of all pairs, what is known when, reconstructions, ROC curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from tacit.auditing.attacks.membership_attacks import MembershipResult
from tacit.auditing.attacks.reconstruction_attacks import ReconstructionResult
from tacit.auditing.client_names import client_name
from tacit.auditing.scoring.images import match, reorder
from tacit.auditing.statements import NOUNS
from tacit.auditing.symbolic.exposure import LEVELS, MEANING, Exposure
from tacit.auditing.symbolic.leakage import QUESTIONS, Leakage
from tacit.report.figures import csv_text
from tacit.report.style import (
    FIGURE_WIDTH,
    GRID,
    HEAT,
    HEAT_INK,
    INK,
    MUTED,
    PALETTE,
    new_figure,
    plot_style,
    series_style,
    short_name,
    slanted,
)

LEVEL_COLOURS = dict(zip(LEVELS, HEAT, strict=True))
# Cells of these levels have a colour of medium lightness in both themes.
DARK_TEXT = ("sum", "difference")
STATUSES = {
    "exact": (PALETTE[1], "known exactly"),
    "noisy": (PALETTE[4], "known with noise"),
    "hidden": (GRID, "not known"),
}
MAX_NUMBERED = 24  # clients up to which cells of the heat map show the noise
NARROW_LEGEND = {"handlelength": 1.0, "columnspacing": 1.0}
PICTURES = 6  # samples shown of an attack


@plot_style()
def exposure_figure(exposure: Exposure, names: Sequence[str] = ()) -> Figure:
    """A cell per pair: what the row's client learns about the gradients of the column's client."""
    levels = exposure.levels
    clients = len(levels)
    # Inches: cells are large enough for a number, up to the width of a page.
    width = min(9.0, max(FIGURE_WIDTH, 0.42 * clients + 0.8))
    figure, axes = new_figure(width, width + 0.8)
    axes.grid(False)
    for row, column in np.ndindex(clients, clients):
        if row == column:
            continue
        level = LEVELS[levels[row, column]]
        curious, victim = client_name(row, names), client_name(column, names)
        tip = f"tip:client {curious} about client {victim}: {MEANING[level]}"
        deviation = float(exposure.deviations[row, column])
        has_noise = 0 < deviation < np.inf
        tip += f"; noise of deviation {deviation:.3g} on the best known gradient" * has_noise
        _cell(axes, column, row, 0.94, 0.94, LEVEL_COLOURS[level], gid=tip)
        if clients <= MAX_NUMBERED and has_noise:
            colour = HEAT_INK if level in DARK_TEXT else INK
            size = min(10.5, 0.36 * 72 * (width - 0.8) / clients)
            style = {"ha": "center", "va": "center_baseline", "fontsize": size, "color": colour}
            axes.text(column, row, f"{deviation:.2g}".replace("0.", ".", 1), **style)
    ticks = range(0, clients, 1 if clients <= MAX_NUMBERED else clients // 15)
    axes.set(xlim=(-0.5, clients - 0.5), ylim=(clients - 0.5, -0.5), aspect="equal")
    axes.set(xlabel="about client", ylabel="what this client learns")
    labels = [short_name(client_name(k, names)) for k in ticks]
    axes.set_xticks(ticks, labels, **slanted(labels))
    axes.set_yticks(ticks, labels)
    # Large figures are shown smaller.
    size = 10 * max(1.0, width / 6.6)
    axes.tick_params(length=0, labelsize=size)
    axes.xaxis.label.set_size(size)
    axes.yaxis.label.set_size(size)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    handles = [Patch(facecolor=LEVEL_COLOURS[level], label=MEANING[level]) for level in LEVELS]
    key: dict[str, Any] = {"title": "from least to most", "alignment": "left", "fontsize": size}
    figure.legend(handles=handles, loc="outside lower left", title_fontsize=size, **key)
    return figure


def exposure_csv(exposure: Exposure, names: Sequence[str] = ()) -> str:
    """A row per pair of clients."""
    rows = [
        (
            client_name(row, names),
            client_name(column, names),
            LEVELS[level],
            "" if np.isinf(noise) else f"{noise:.6g}",
        )
        for row, column in np.ndindex(*exposure.levels.shape)
        if (level := int(exposure.levels[row, column])) >= 0
        for noise in (float(exposure.deviations[row, column]),)
    ]
    return csv_text(("client", "about client", "learns", "noise deviation"), rows)


def timeline_csv(leakage: Leakage) -> str:
    """A row per question and iteration."""
    rows = [
        (name, when, status)
        for name in QUESTIONS
        for when, status in zip(leakage.of(name).when, leakage.of(name).statuses, strict=True)
    ]
    return csv_text(("question", "iteration", "status"), rows)


@plot_style()
def timeline_figure(leakage: Leakage) -> Figure:
    """A row per question, a cell per iteration: exact, noisy or hidden."""
    figure, axes = new_figure(FIGURE_WIDTH, 2.1)
    axes.grid(False)
    answered = {name: series for name in QUESTIONS if (series := leakage.of(name)).when}
    for row, (name, series) in enumerate(answered.items()):
        for when, status in zip(series.when, series.statuses, strict=True):
            colour, meaning = STATUSES[status]
            tip = f"tip:{NOUNS[name]}, {when}: {meaning}"
            _cell(axes, when, row, 0.92, 0.8, colour, gid=tip)
    last = max(max(series.when) for series in answered.values())
    axes.set(xlim=(-0.6, last + 0.6), ylim=(len(answered) - 0.5, -0.5))
    axes.set(xlabel="iteration, or number of the batch")
    axes.set_yticks(range(len(answered)), answered)
    handles = [Patch(facecolor=colour, label=label) for colour, label in STATUSES.values()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, **NARROW_LEGEND)
    return figure


def _cell(
    axes: Any, x: float, y: float, width: float, height: float, colour: str, gid: str
) -> None:
    corner = (x - width / 2, y - height / 2)
    axes.add_patch(Rectangle(corner, width, height, facecolor=colour, edgecolor="none", gid=gid))


def can_show(attack: ReconstructionResult) -> bool:
    """Whether the samples are pictures: grey or in colour."""
    shape = attack.truth.shape[2:]
    return len(shape) == 3 and shape[0] in (1, 3)


@plot_style()
def pictures_figure(attack: ReconstructionResult) -> Figure:
    """Originals above, reconstructions below, in the order that fits best."""
    order = match(attack.guess.double(), attack.truth.double())
    guess = reorder(attack.guess, order).flatten(0, 1)[:PICTURES]
    truth = attack.truth.flatten(0, 1)[:PICTURES]
    figure = Figure(figsize=(FIGURE_WIDTH, 1.5), layout="constrained")
    # Unused columns keep a few pictures from filling the width.
    grid = figure.subplots(2, PICTURES, squeeze=False)
    for axes in grid[:, len(truth) :].flat:
        axes.set_axis_off()
    low, high = float(truth.min()), float(truth.max())
    for row, (name, samples) in enumerate((("original", truth), ("attack", guess))):
        for axes, sample in zip(grid[row], samples, strict=False):
            axes.set(xticks=[], yticks=[])
            axes.grid(False)
            picture = sample.double().clamp(low, high).sub(low).div(max(high - low, 1e-12))
            grey = {"cmap": "gray", "vmin": 0, "vmax": 1}  # ignored by pictures in colour
            axes.imshow(picture.permute(1, 2, 0).numpy(), interpolation="nearest", **grey)
        grid[row][0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=10)
    return figure


@plot_style()
def roc_figure(memberships: Sequence[MembershipResult]) -> Figure:
    """True positives over false positives of every score."""
    figure, axes = new_figure(FIGURE_WIDTH, FIGURE_WIDTH - 0.2)
    axes.plot([0, 1], [0, 1], color=MUTED, linestyle=":", linewidth=1)
    for number, result in enumerate(memberships):
        label = f"{result.score}: AUC {result.roc.auc:.2f}"
        axes.plot(result.roc.fpr, result.roc.tpr, color=series_style(number)[0], label=label)
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.set(xlabel="false positives", ylabel="true positives")
    axes.legend(loc="lower right")
    return figure
