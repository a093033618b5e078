"""Draw the graph of a federation with the names of its nodes."""

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
LONGEST_INSIDE = 3  # letters that fit into a circle
LABEL_DISTANCE = 16  # points from the centre of a circle to a name beside it
# Keeps a name readable where an edge runs behind it.
LABEL_BOX = {"facecolor": PAPER, "edgecolor": "none", "alpha": 0.7, "pad": 0.5}


def draw_graph(manifest: Manifest, path: Path) -> None:
    """Draw the graph into a .png, .svg or .pdf file."""
    if path.suffix.lower() not in SUFFIXES:
        remedy = f"Use a name that ends in {', '.join(SUFFIXES)}."
        raise Misuse(f"{path} is not a picture file.", remedy)
    figure = named_graph(manifest)
    try:
        with plot_style():
            figure.savefig(path, dpi=160, facecolor=PAPER, bbox_inches="tight")
    except OSError as problem:
        raise Misuse(f"Cannot write {path}: {problem.strerror}.", "Choose another file.") from None


def named_graph(manifest: Manifest) -> Figure:
    """The graph with the names of the nodes."""
    graph = manifest.graph
    stored = StoredGraph(
        description=graph.describe(),
        clients=graph.clients,
        directed=graph.directed,
        edges=graph.edges.tolist(),
        positions=_layout(manifest).tolist(),
    )
    figure = graph_figure(stored)
    labels = figure.axes[0].texts  # empty for graphs too large for numbers
    fits_inside = max(map(len, manifest.names)) <= LONGEST_INSIDE
    centre = np.mean([label.get_position() for label in labels], axis=0) if labels else np.zeros(2)
    for label, name in zip(labels, manifest.names, strict=False):
        label.set_text(name)
        if not fits_inside:
            _move_beside(label, np.asarray(label.get_position()) - centre, figure)
    return figure


def _move_beside(label: Any, outwards: np.ndarray, figure: Figure) -> None:
    """Move a name from its circle to the side that faces away from the centre of the graph."""
    length = float(np.hypot(*outwards))
    x, y = outwards / length if length > 0.05 else (0.0, -1.0)
    place, dx, dy = figure.axes[0].transData, LABEL_DISTANCE * x, LABEL_DISTANCE * y
    moved = offset_copy(place, figure, x=dx, y=dy, units="points")
    label.set(transform=moved, fontsize=9, bbox=LABEL_BOX)
    label.set_ha("center" if abs(x) < 0.3 else "left" if x > 0 else "right")
    label.set_va("center" if abs(y) < 0.3 else "bottom" if y > 0 else "top")


def _layout(manifest: Manifest) -> np.ndarray:
    """The usual layout of this kind of graph, if the manifest's graph is of a known kind."""
    topology = manifest.graph.topology
    try:
        usual = make_graph(manifest.config.graph, manifest.config.run.seed).topology
    # Edges or weights from a file: the manifest does not say how they were made.
    except Misuse:
        return topology.layout()
    return usual.layout() if np.array_equal(usual.edges, topology.edges) else topology.layout()
