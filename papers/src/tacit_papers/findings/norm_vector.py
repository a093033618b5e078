"""Finding: what the protection vectors of DSG-RMS and EDSG-RMS leave open in localization.

The norm vector adds one number to all coordinates, so every difference between coordinates is sent
in clear. And all three vectors are functions of the estimate alone: an adversary that knows τ, as
every agent does, removes them.
"""

from __future__ import annotations

import math
from typing import Any

from matplotlib.figure import Figure

from tacit.report.style import MUTED, plot_style
from tacit_papers.framework.artifact import Artifact
from tacit_papers.framework.cells import Cell, Key, Scale
from tacit_papers.framework.drawing import legend_below, line_style, log_scale
from tacit_papers.framework.results import ArtifactResult
from tacit_papers.measures.protection_removal import ProtectionRemoval
from tacit_papers.rms.claims import error_at_least, error_at_most
from tacit_papers.rms.fig1_fig3 import localization

TAU = 0.8
NO_MATRIX, SMALL, LARGE = "no matrix", "σ² = 0.001", "σ² = 1"
VARIANCES = {NO_MATRIX: 0.0, SMALL: 1e-3, LARGE: 1.0}
VECTORS: dict[str, dict[str, Any]] = {
    "no vector": {"kind": "norm", "tau": 0.0},
    **{name: {"kind": name, "tau": TAU} for name in ("norm", "erf", "tanh")},
}
NONE, NORM, ERF, TANH = (("DSG-RMS", SMALL, vector) for vector in VECTORS)
EXACT_NORM = ("EDSG-RMS", SMALL, "norm")
BARE, LARGE_NORM = ("DSG-RMS", NO_MATRIX, "norm"), ("DSG-RMS", LARGE, "norm")
LINES = {
    "as_sent": "messages as they are",
    "difference": "difference of coordinates",
    "known": "with τ",
    "gradient": "gradient, with τ",
}
EXACT = 1e-3  # percent that count as exact


def _cell(key: Key, scale: Scale) -> Cell:
    rule, matrix, vector = key
    deviation = math.sqrt(VARIANCES[matrix])
    algorithm = {
        "name": rule.lower(),
        "lr": 0.2,
        "matrix": {"structure": "dense", "deviation": deviation, "off_diagonal": deviation},
        "protection": VECTORS[vector],
    }
    config = localization(algorithm, scale.pick(300, 100))
    return Cell(key, ProtectionRemoval(config, runs=scale.pick(100, 20)))


def _cells(scale: Scale) -> list[Cell]:
    keys = (NONE, NORM, ERF, TANH, BARE, LARGE_NORM, EXACT_NORM)
    return [_cell(key, scale) for key in keys]


def _draw(result: ArtifactResult) -> Figure:
    """A panel per cell: the errors by iteration."""
    cells = result.measured
    columns = min(4, len(cells))
    rows = -(-len(cells) // columns)
    with plot_style():
        figure = Figure(figsize=(2.9 * columns, 2.7 * rows + 0.4), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False, sharey=True).flatten()
        for axes, cell in zip(panels, cells, strict=False):
            curve = result.curve(cell.key)
            for number, (name, label) in enumerate(LINES.items()):
                if name in curve:
                    errors = [max(value, 1e-13) for value in curve[name]]
                    axes.plot(curve["round"], errors, label=label, **line_style(number))
            log_scale(axes)
            axes.set_xlabel("iteration")
            axes.set_title(f"{cell.key[0]}, {cell.key[2]}\n{cell.key[1]}", fontsize=9, color=MUTED)
        for axes in panels[len(cells) :]:
            axes.set_axis_off()
        figure.supylabel("off by, % of the norm", fontsize=10)
        legend_below(figure, panels[0])
    return figure


ARTIFACTS = (
    Artifact(
        name="findings/norm-vector",
        title="What protection vectors leave open: localization, an eavesdropper on all links",
        axes=("rule", "matrix", "vector"),
        cells=_cells,
        metric="known",
        claims=[
            error_at_most(
                "norm vector: without τ, the difference of coordinates is known exactly "
                "(EDSG-RMS: from iteration 2)",
                "estimates hidden without τ (Theorem 3)",
                [NORM, EXACT_NORM],
                EXACT,
                "difference",
            ),
            error_at_most(
                "the random matrix alone hides nothing of the estimate",
                "for gradients only (Remark 1)",
                [NONE],
                EXACT,
                "as_sent",
            ),
            error_at_least(
                "erf and tanh help there: without τ the difference is off",
                "alternatives (Remark 1)",
                [ERF, TANH],
                1.0,
                "difference",
            ),
            error_at_most(
                "but erf is so flat that its messages are the estimate within 10 %",
                "alternatives (Remark 1)",
                [ERF],
                10.0,
                "as_sent",
            ),
            error_at_most(
                "with τ, which every agent knows, the estimate is known exactly after some "
                "iterations: no form helps",
                "internal agents may infer gradients, and use τ (section 5.2)",
                [NORM, ERF, TANH, EXACT_NORM],
                EXACT,
                "known",
            ),
            error_at_most(
                "with τ and without the matrix, so is the gradient",
                "gradients protected",
                [BARE],
                EXACT,
                "gradient",
            ),
            error_at_most(
                "the matrix of the paper's variance 0.001 leaves the gradient off by a few percent",
                "gradients protected",
                [NORM, ERF, TANH],
                6.0,
                "gradient",
            ),
            error_at_least(
                "a matrix of variance 1 leaves it off by more than its norm",
                "gradients protected for large variances (Theorem 3)",
                [LARGE_NORM],
                100.0,
                "gradient",
            ),
        ],
        draw=_draw,
        protocol=(
            "localization as in rms/fig3 with γ = 0.2, τ = 0.8, 300 iterations, 100 runs; the "
            "eavesdropper sees all messages, knows A and γ, and starts from zero guesses; root "
            "mean squares in percent"
        ),
        quickly="100 iterations, 20 runs",
        form=".2e",
    ),
)
