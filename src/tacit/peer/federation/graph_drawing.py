"""Draw the graph of a federation with the names of its nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from tacit.config.graphs import make_graph
from tacit.core.errors import Misuse
from tacit.peer.federation.manifest import Manifest
from tacit.report.drawings import graph_figure
from tacit.report.finished_run import StoredGraph
from tacit.report.style import PAPER, plot_style

SUFFIXES = (".png", ".svg", ".pdf")


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
        names=list(manifest.names),
    )
    return graph_figure(stored)


def _layout(manifest: Manifest) -> np.ndarray:
    """The usual layout of this kind of graph, if the manifest's graph is of a known kind."""
    topology = manifest.graph.topology
    try:
        usual = make_graph(manifest.config.graph, manifest.config.run.seed).topology
    # Edges or weights from a file: the manifest does not say how they were made.
    except Misuse:
        return topology.layout()
    return usual.layout() if np.array_equal(usual.edges, topology.edges) else topology.layout()
