"""Drawings of a run's graph and of its partition."""

from __future__ import annotations

import math
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline
from matplotlib.transforms import offset_copy

from tacit.core.errors import Misuse
from tacit.graph import Topology
from tacit.record.run_files import MAX_DRAWN_EDGES
from tacit.report.finished_run import StoredGraph, StoredPartition
from tacit.report.plots import Numbers
from tacit.report.style import (
    FIGURE_WIDTH,
    INK,
    MUTED,
    PALETTE,
    PAPER,
    legend_label,
    new_figure,
    plot_style,
    short_name,
    slanted,
)

MAX_NUMBERED_CLIENTS = 40  # with more, circles show no numbers
MAX_NUMBERED_BARS = 60  # with more, bars touch each other and have no numbers
MAX_BARS = 200
LONGEST_INSIDE = 3  # characters of a name that fit into a circle
LABEL_DISTANCE = 16  # points from the centre of a circle to a name beside it
# Keeps a name readable where an edge runs behind it.
LABEL_BOX = {"facecolor": PAPER, "edgecolor": "none", "alpha": 0.7, "pad": 0.5}

# Paul Tol's muted scheme: ten colours that colour-blind readers can tell apart.
CLASS_COLOURS = (
    "#332288", "#88ccee", "#44aa99", "#117733", "#999933",
    "#ddcc77", "#cc6677", "#882255", "#aa4499", "#bbbbbb",
)  # fmt: skip


def can_draw(graph: StoredGraph) -> bool:
    """Whether the edges are known and few enough to be visible."""
    return graph.edges is not None and len(_distinct_edges(graph)) <= MAX_DRAWN_EDGES


@plot_style()
def graph_figure(graph: StoredGraph) -> Figure:
    """Clients as circles with names or numbers (up to 40), edges as lines or, directed, arrows."""
    if not can_draw(graph):
        raise Misuse(
            f"{graph.description} has too many edges to draw.",
            "Draw a graph of at most 2,000 edges.",
        )
    edges, places = _distinct_edges(graph), _scaled_positions(graph)
    numbered = graph.clients <= MAX_NUMBERED_CLIENTS
    # The distance of a client from the nearest other one; infinite if there is no other one.
    distances = np.linalg.norm(places[:, None] - places, axis=-1)
    np.fill_diagonal(distances, np.inf)
    nearest = float(distances.min())
    largest, smallest = (0.095, 0.035) if numbered else (0.035, 0.006)
    radius = max(smallest, min(largest, 0.36 * nearest))
    figure, axes = new_figure(FIGURE_WIDTH, FIGURE_WIDTH)
    axes.set_axis_off()
    axes.set_aspect("equal")
    lines, heads = _edge_outlines(edges, places, radius, graph.directed)
    width = 1.3 if len(edges) <= 100 else 0.8 if len(edges) <= 500 else 0.5
    _add_outlines(axes, lines, facecolor="none", edgecolor=MUTED, linewidth=width)
    _add_outlines(axes, heads, facecolor=MUTED, edgecolor="none")
    if numbered:
        circles = [Outline.circle(place, radius) for place in places]
        _add_outlines(axes, circles, facecolor=PAPER, edgecolor=PALETTE[0], linewidth=1.6)
        label: dict[str, Any] = {"ha": "center", "va": "center_baseline", "color": INK}
        size = min(10.0, radius * 150 * 0.75)
        texts = [
            axes.text(x, y, graph.name_of(client), fontsize=size, **label)
            for client, (x, y) in enumerate(places)
        ]
        if max(map(len, graph.names), default=0) > LONGEST_INSIDE:
            for text, place in zip(texts, places, strict=True):
                _move_beside(text, place - places.mean(0), figure)
    else:
        # So small that a polygon looks like a circle.
        polygon = Outline.unit_regular_polygon(12)
        corners = radius * np.asarray(polygon.vertices, dtype=np.float64)
        circles = [Outline(place + corners, polygon.codes) for place in places]
        _add_outlines(axes, circles, facecolor=PALETTE[0], edgecolor="none", linewidth=1.6)
    box = Outline.make_compound_path(*lines, *circles).get_extents().padded(0.02)
    axes.set(xlim=(box.x0, box.x1), ylim=(box.y0, box.y1))
    figure.set_figheight(min(4.6, max(1.0, FIGURE_WIDTH * box.height / box.width)))
    return figure


def _move_beside(label: Any, outwards: Numbers, figure: Figure) -> None:
    """Move a name from its circle to the side that faces away from the centre of the graph."""
    length = float(np.hypot(*outwards))
    x, y = outwards / length if length > 0.05 else (0.0, -1.0)
    place, dx, dy = figure.axes[0].transData, LABEL_DISTANCE * x, LABEL_DISTANCE * y
    moved = offset_copy(place, figure, x=dx, y=dy, units="points")
    label.set(transform=moved, fontsize=9, bbox=LABEL_BOX)
    label.set_ha("center" if abs(x) < 0.3 else "left" if x > 0 else "right")
    label.set_va("center" if abs(y) < 0.3 else "bottom" if y > 0 else "top")


def _distinct_edges(graph: StoredGraph) -> list[tuple[int, int]]:
    pairs = [(a, b) for a, b in graph.edges or () if a != b]
    return sorted(set(pairs if graph.directed else [(min(pair), max(pair)) for pair in pairs]))


def _scaled_positions(graph: StoredGraph) -> Numbers:
    """Positions [N, 2] scaled into the square from −1 to 1 with their proportions."""
    if graph.positions is None:
        edges = graph.edges or np.zeros((0, 2))
        topology = Topology.from_edges(edges, graph.clients, directed=graph.directed)
        places = np.asarray(topology.layout(), dtype=np.float64)
    else:
        places = np.array(graph.positions, dtype=np.float64)
    low, high = places.min(0), places.max(0)
    extent = float(np.max(high - low)) or 1.0
    scaled: Numbers = (places - (low + high) / 2) * (2 / extent)
    return scaled


def _edge_outlines(
    edges: list[tuple[int, int]], places: Numbers, radius: float, directed: bool
) -> tuple[list[Outline], list[Outline]]:
    """The lines of all edges and, if they are directed, their arrow heads."""
    both_ways = set(edges) & {(b, a) for a, b in edges}
    lines, heads = [], []
    size = min(0.07, max(0.02, 0.9 * radius))
    for a, b in edges:
        start, end = places[a], places[b]
        across = np.array([start[1] - end[1], end[0] - start[0]])
        bend = 0.14 if (a, b) in both_ways else 0.0
        if _crosses_client(a, b, places, radius):
            bend = 0.22
        middle = (start + end) / 2 + bend * across
        start, end = start + radius * _unit(middle - start), end + radius * _unit(middle - end)
        if directed:
            back = _unit(middle - end)
            side = 0.4 * size * np.array([-back[1], back[0]])
            base = end + size * back
            heads.append(Outline([end, base + side, base - side, end], closed=True))
            end = base
        corners = [start, middle, end] if bend else [start, end]
        codes = [Outline.MOVETO, *([Outline.CURVE3] * 2 if bend else [Outline.LINETO])]
        lines.append(Outline(corners, codes))
    return lines, heads


def _crosses_client(a: int, b: int, places: Numbers, radius: float) -> bool:
    """Whether the straight line from a to b passes through another client's circle."""
    along = places[b] - places[a]
    length = float(along @ along)
    if length == 0 or len(places) > MAX_NUMBERED_CLIENTS:
        return False
    share = ((places - places[a]) @ along) / length
    distance = np.hypot(*(places - places[a] - share[:, None] * along).T)
    return bool(((share > 1e-6) & (share < 1 - 1e-6) & (distance < radius)).any())


def _unit(vector: Numbers) -> Numbers:
    length = math.hypot(*vector)
    return vector / length if length else vector


def _add_outlines(axes: Any, outlines: list[Outline], **style: Any) -> None:
    """Add all outlines as one path, which takes far fewer bytes than one element each."""
    if outlines:
        axes.add_artist(PathPatch(Outline.make_compound_path(*outlines), **style))


@plot_style()
def partition_figure(partition: StoredPartition) -> Figure:
    """A stacked bar per client with a colour per class; at most 200 evenly spaced clients."""
    clients, classes = len(partition.counts), len(partition.classes)
    bars = min(clients, MAX_BARS)
    counts = np.array(partition.counts, dtype=np.float64)[np.arange(bars) * clients // bars]
    tops = counts.cumsum(1)
    numbered = clients <= MAX_NUMBERED_BARS
    half = 0.4 if numbered else 0.5
    # With many classes, the legend shows eight steps of the colour scale.
    named = range(classes) if classes <= 20 else [round(k * (classes - 1) / 7) for k in range(8)]
    widest = max(len(partition.classes[k]) for k in named)
    columns = max(1, min(len(named), 5 if widest <= 5 else 3 if widest <= 12 else 2))
    figure, axes = new_figure(FIGURE_WIDTH, 2.6 + 0.2 * math.ceil(len(named) / columns))
    axes.grid(False, axis="x")
    handles = []
    for k, colour in enumerate(class_colours(classes)):
        boxes = [
            _box(x - half, top - count, x + half, top)
            for x, (top, count) in enumerate(zip(tops[:, k], counts[:, k], strict=True))
            if count
        ]
        outline = Outline.make_compound_path(*boxes) if boxes else Outline(np.zeros((1, 2)))
        border = PAPER if numbered else "none"
        patch = PathPatch(outline, facecolor=colour, edgecolor=border, linewidth=0.5)
        patch.set_label(legend_label(partition.classes[k]))
        axes.add_artist(patch)
        handles.append(patch)
    axes.set(xlim=(-0.7, bars - 0.3), ylim=(0, max(1.0, tops[:, -1].max()) * 1.04))
    ticks = range(0, clients if numbered else 0, 1 if clients <= 25 else 5)
    labels = [short_name(partition.client_names[k]) for k in ticks]
    axes.set_xticks(ticks, labels, **slanted(labels))
    some = f"{bars} of {clients:,} clients, evenly spaced"
    every = "client" if numbered else f"{clients:,} clients"
    axes.set(xlabel=every if bars == clients else some, ylabel="samples")
    shown = [handles[k] for k in named]
    figure.legend(handles=shown, loc="outside lower center", ncols=columns, handlelength=1.0)
    return figure


def class_colours(count: int) -> list[str]:
    """One colour per class: ten distinct ones, or steps along a scale if there are more."""
    if count <= len(CLASS_COLOURS):
        return list(CLASS_COLOURS[:count])
    scale = matplotlib.colormaps["viridis"](np.linspace(0, 1, count))
    return [to_hex(colour) for colour in scale]


def _box(left: float, bottom: float, right: float, top: float) -> Outline:
    corners = [(left, bottom), (right, bottom), (right, top), (left, top), (left, bottom)]
    return Outline(corners, closed=True)
