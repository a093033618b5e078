"""A drawing of who talks to whom in a federation, with the names of the nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.transforms import offset_copy

from tacit.config.graphs import make_graph
from tacit.core.errors import Misuse
from tacit.peer.federation.manifest import Manifest
from tacit.report.drawings import graph_figure
from tacit.report.finished_run import StoredGraph
from tacit.report.style import PAPER, plot_style

SUFFIXES = (".png", ".svg", ".pdf")
LONGEST_INSIDE = 3  # letters that a circle has room for
BESIDE = 16  # points from the middle of a circle to a name beside it
PLATE = {
    "facecolor": PAPER,
    "edgecolor": "none",
    "alpha": 0.7,
    "pad": 0.5,
}  # an edge may run behind a name


def picture(manifest: Manifest) -> Figure:
    """The graph as the reports draw it, with names for numbers."""
    graph = manifest.graph
    stored = StoredGraph(
        description=graph.describe(),
        clients=graph.clients,
        directed=graph.directed,
        edges=[(a, b) for a, b in graph.edges.tolist()],
        positions=[(x, y) for x, y in _layout(manifest).tolist()],
    )
    figure = graph_figure(stored)
    labels = figure.axes[0].texts  # none where there are too many to be numbered
    inside = max(len(member.name) for member in manifest.members) <= LONGEST_INSIDE
    middle = np.mean([label.get_position() for label in labels], axis=0) if labels else np.zeros(2)
    for label, member in zip(labels, manifest.members, strict=False):
        label.set_text(member.name)
        if not inside:
            _move_out(label, np.asarray(label.get_position()) - middle, figure)
    return figure


def _move_out(label: Any, out: np.ndarray, figure: Figure) -> None:
    """Move a name from its circle to beside it, on the side that looks away from the middle of the graph."""
    length = float(np.hypot(*out))
    x, y = out / length if length > 0.05 else (0.0, -1.0)
    away = offset_copy(figure.axes[0].transData, figure, x=BESIDE * x, y=BESIDE * y, units="points")
    label.set(transform=away, fontsize=9, bbox=PLATE)
    label.set_ha("center" if abs(x) < 0.3 else "left" if x > 0 else "right")
    label.set_va("center" if abs(y) < 0.3 else "bottom" if y > 0 else "top")


def draw(manifest: Manifest, path: Path) -> None:
    """Draw the graph into a file, of the kind that its name says."""
    if path.suffix.lower() not in SUFFIXES:
        raise Misuse(
            f"{path} is not a kind of picture.", f"Let its name end in {', '.join(SUFFIXES)}."
        )
    figure = picture(manifest)
    try:
        with plot_style():
            figure.savefig(path, dpi=160, facecolor=PAPER, bbox_inches="tight")
    except OSError as problem:
        raise Misuse(f"Cannot write {path}: {problem.strerror}.", "Choose another place.") from None


def _layout(manifest: Manifest) -> np.ndarray:
    """As the family of the graph is usually drawn, where the graph is one of a family."""
    try:
        family = make_graph(manifest.config.graph, manifest.config.run.seed).topology
    except Misuse:  # edges or weights of its own: how they were made is not in the manifest
        return manifest.graph.topology.layout()
    same = np.array_equal(family.edges, manifest.graph.edges)
    return family.layout() if same else manifest.graph.topology.layout()
