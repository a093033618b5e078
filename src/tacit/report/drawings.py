"""Drawings of what stood still during a run: the graph, and who held which data."""

from __future__ import annotations

import math
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline
from scipy.spatial import cKDTree

from tacit.core.errors import Misuse
from tacit.experiment.folder import DRAWN_EDGES
from tacit.graph import Topology
from tacit.report.finished_run import StoredGraph, StoredPartition
from tacit.report.style import INK, MUTED, PALETTE, PAPER, plot_style, legend_label

Numbers = npt.NDArray[np.float64]
NUMBERED_CLIENTS = 40
NAMED_BARS = 60
MOST_BARS = 200

# Paul Tol's muted scheme: ten colours that stay apart for the colour-blind.
CLASS_COLOURS = (
    "#332288", "#88ccee", "#44aa99", "#117733", "#999933",
    "#ddcc77", "#cc6677", "#882255", "#aa4499", "#bbbbbb",
)  # fmt: skip


# --- the graph -----------------------------------------------------------------------------------------


def can_draw(graph: StoredGraph) -> bool:
    """Whether the edges are known and few enough to be seen."""
    return graph.edges is not None and len(_drawn_edges(graph)) <= DRAWN_EDGES


def graph_figure(graph: StoredGraph) -> Figure:
    """The clients as circles (numbered up to 40), edges as lines, or arrows where the graph is directed."""
    if not can_draw(graph):
        raise Misuse(
            f"{graph.description} has too many edges to draw.",
            "Draw a graph of at most 2,000 edges.",
        )
    edges, places = _drawn_edges(graph), _places(graph)
    radius = _radius(places, graph.clients <= NUMBERED_CLIENTS)
    with plot_style():
        figure = Figure(figsize=(4.6, 4.6), layout="constrained")
        axes = figure.add_subplot()
        axes.set_axis_off()
        axes.set_aspect("equal")
        width = 1.3 if len(edges) <= 100 else 0.8 if len(edges) <= 500 else 0.5
        strokes, heads = _strokes(edges, places, radius, graph.directed)
        if strokes:
            _add(axes, strokes, facecolor="none", edgecolor=MUTED, linewidth=width)
        if heads:
            _add(axes, heads, facecolor=MUTED, edgecolor="none")
        filled = graph.clients > NUMBERED_CLIENTS
        dot = Outline.unit_regular_polygon(12)  # small enough to pass for a circle
        corners = np.asarray(dot.vertices, dtype=np.float64)
        circles = [
            Outline(place + radius * corners, dot.codes)
            if filled
            else Outline.circle(place, radius)
            for place in places
        ]
        colours = (PALETTE[0], "none") if filled else (PAPER, PALETTE[0])
        _add(axes, circles, facecolor=colours[0], edgecolor=colours[1], linewidth=1.6)
        if not filled:
            size = min(10.0, radius * 150 * 0.75)
            for client, (x, y) in enumerate(places):
                axes.text(
                    x, y, str(client), ha="center", va="center_baseline", color=INK, fontsize=size
                )
        box = Outline.make_compound_path(*strokes, *circles).get_extents().padded(0.02)
        axes.set_xlim(box.x0, box.x1)
        axes.set_ylim(box.y0, box.y1)
        figure.set_figheight(min(5.0, max(1.0, 4.6 * box.height / box.width)))
    return figure


def _drawn_edges(graph: StoredGraph) -> list[tuple[int, int]]:
    pairs = [(a, b) for a, b in graph.edges or () if a != b]
    return sorted(set(pairs if graph.directed else [(min(pair), max(pair)) for pair in pairs]))


def _places(graph: StoredGraph) -> Numbers:
    """Where the clients are, scaled into the square from −1 to 1 without changing proportions."""
    if graph.positions is None:
        known = Topology.from_edges(
            graph.edges or np.zeros((0, 2)), graph.clients, directed=graph.directed
        )
        places = np.asarray(known.layout(), dtype=np.float64)
    else:
        places = np.array(graph.positions, dtype=np.float64)
    low, high = places.min(0), places.max(0)
    extent = float(np.max(high - low)) or 1.0
    scaled: Numbers = (places - (low + high) / 2) * (2 / extent)
    return scaled


def _radius(places: Numbers, numbered: bool) -> float:
    nearest = 1.0
    if len(places) > 1:
        distances = np.asarray(cKDTree(places).query(places, k=2)[0])
        nearest = float(distances[:, 1].min())
    most, least = (0.095, 0.035) if numbered else (0.035, 0.006)
    return max(least, min(most, 0.36 * nearest))


def _strokes(
    edges: list[tuple[int, int]], places: Numbers, radius: float, directed: bool
) -> tuple[list[Outline], list[Outline]]:
    """The lines of all edges and, for directed ones, the heads of the arrows."""
    both_ways = set(edges) & {(b, a) for a, b in edges}
    strokes, heads = [], []
    head = min(0.07, max(0.02, 0.9 * radius))
    for a, b in edges:
        start, end = places[a], places[b]
        across = np.array([start[1] - end[1], end[0] - start[0]])
        around = 0.22 if _passes_a_client(a, b, places, radius) else 0.0
        bend = 0.14 if (a, b) in both_ways and not around else around
        middle = (start + end) / 2 + bend * across
        start, end = start + radius * _unit(middle - start), end + radius * _unit(middle - end)
        if directed:
            back = _unit(middle - end)
            side = np.array([-back[1], back[0]])
            base = end + head * back
            heads.append(
                Outline([end, base + 0.4 * head * side, base - 0.4 * head * side, end], closed=True)
            )
            end = base
        corners = [start, middle, end] if bend else [start, end]
        codes = [Outline.MOVETO, *([Outline.CURVE3] * 2 if bend else [Outline.LINETO])]
        strokes.append(Outline(corners, codes))
    return strokes, heads


def _passes_a_client(a: int, b: int, places: Numbers, radius: float) -> bool:
    """Whether the straight line from a to b runs through another client's circle."""
    along = places[b] - places[a]
    length = float(along @ along)
    if length == 0 or len(places) > NUMBERED_CLIENTS:
        return False
    share = ((places - places[a]) @ along) / length
    off = np.hypot(*(places - places[a] - share[:, None] * along).T)
    return bool(((share > 1e-6) & (share < 1 - 1e-6) & (off < radius)).any())


def _unit(vector: Numbers) -> Numbers:
    length = math.hypot(*vector)
    return vector / length if length else vector


def _add(axes: Any, outlines: list[Outline], **look: Any) -> None:
    """All outlines as one path: a fraction of the bytes of one element each."""
    axes.add_artist(PathPatch(Outline.make_compound_path(*outlines), **look))


# --- the partition -------------------------------------------------------------------------------------


def partition_figure(partition: StoredPartition) -> Figure:
    """A stacked bar per client, a colour per class; of more than 200 clients, evenly spaced ones."""
    clients = len(partition.counts)
    if not clients or not partition.classes:
        raise Misuse("The partition has no clients or no classes.", "Draw one that has both.")
    shown = (
        np.arange(clients) if clients <= MOST_BARS else np.arange(MOST_BARS) * clients // MOST_BARS
    )
    counts = np.array(partition.counts, dtype=np.float64)[shown]
    tops = counts.cumsum(1)
    named = clients <= NAMED_BARS
    half = 0.4 if named else 0.5
    colours = class_colours(len(partition.classes))
    listed = _listed(len(partition.classes))
    widest = max(len(partition.classes[k]) for k in listed)
    columns = max(1, min(len(listed), 5 if widest <= 8 else 4 if widest <= 12 else 2))
    with plot_style():
        figure = Figure(
            figsize=(5.6, 3.1 + 0.2 * math.ceil(len(listed) / columns)), layout="constrained"
        )
        axes = figure.add_subplot()
        axes.grid(False, axis="x")
        handles = []
        for k, colour in enumerate(colours):
            bars = [
                _box(x - half, top - count, x + half, top)
                for x, (top, count) in enumerate(zip(tops[:, k], counts[:, k], strict=True))
                if count
            ]
            outline = Outline.make_compound_path(*bars) if bars else Outline(np.zeros((1, 2)))
            patch = PathPatch(
                outline, facecolor=colour, edgecolor=PAPER if named else "none", linewidth=0.5
            )
            patch.set_label(legend_label(partition.classes[k]))
            axes.add_artist(patch)
            handles.append(patch)
        axes.set_xlim(-0.7, len(shown) - 0.3)
        axes.set_ylim(0, max(1.0, tops[:, -1].max()) * 1.04)
        axes.set_ylabel("samples")
        if named:
            step = 1 if clients <= 25 else 5
            axes.set_xticks(np.arange(0, clients, step))
            axes.set_xlabel("client")
        else:
            axes.set_xticks([])
            axes.set_xlabel(
                f"{clients:,} clients"
                if len(shown) == clients
                else f"{len(shown)} of {clients:,} clients, evenly spaced"
            )
        figure.legend(
            handles=[handles[k] for k in listed],
            loc="outside lower center",
            ncols=columns,
            handlelength=1.0,
        )
    return figure


def class_colours(count: int) -> list[str]:
    """One colour per class: ten that are far apart, or steps along a scale where there are more."""
    if count <= len(CLASS_COLOURS):
        return list(CLASS_COLOURS[:count])
    scale = matplotlib.colormaps["viridis"](np.linspace(0, 1, count))
    return ["#" + "".join(f"{round(255 * part):02x}" for part in colour[:3]) for colour in scale]


def _listed(count: int) -> list[int]:
    """The classes the legend names: all, or some along the scale."""
    return list(range(count)) if count <= 20 else [round(k * (count - 1) / 7) for k in range(8)]


def _box(left: float, bottom: float, right: float, top: float) -> Outline:
    corners = [(left, bottom), (right, bottom), (right, top), (left, top), (left, bottom)]
    return Outline(corners, closed=True)
