"""A drawing of who talks to whom in a federation, with the names of the nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from tacit.errors import Misuse
from tacit.experiment.drawings import graph_figure
from tacit.experiment.finished import StoredGraph
from tacit.experiment.graphs import make_graph
from tacit.experiment.style import PAPER, styled
from tacit.peer.manifest import Manifest

SUFFIXES = (".png", ".svg", ".pdf")


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
    longest = max(len(member.name) for member in manifest.members)
    for label, member in zip(figure.axes[0].texts, manifest.members, strict=False):  # many have no numbers
        label.set_text(member.name)
        if longest > 3:  # too long for a circle: a plate over it
            label.set_bbox({"facecolor": PAPER, "edgecolor": "none", "boxstyle": "round,pad=0.15"})
            label.set_fontsize(9)
    return figure


def draw(manifest: Manifest, path: Path) -> None:
    """Draw the graph into a file, of the kind that its name says."""
    if path.suffix.lower() not in SUFFIXES:
        raise Misuse(f"{path} is not a kind of picture.", f"Let its name end in {', '.join(SUFFIXES)}.")
    figure = picture(manifest)
    try:
        with styled():
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
