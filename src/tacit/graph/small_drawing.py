"""A small picture of a graph, for notebooks."""

from __future__ import annotations

import numpy as np

from tacit.graph.topology import BaseTopology

MAX_CLIENTS = 60
SIZE, MARGIN = 220, 14


def small_drawing(topology: BaseTopology) -> str:
    """An SVG picture; empty if there are too many clients to see anything."""
    n = topology.clients
    if n > MAX_CLIENTS:
        return ""
    angles = 2 * np.pi * np.arange(n) / max(n, 1)
    places = np.stack([np.sin(angles), -np.cos(angles)], axis=1)
    if topology.positions is not None:
        places = np.asarray(topology.positions, dtype=np.float64)
    low, high = places.min(axis=0), places.max(axis=0)
    scale = (SIZE - 2 * MARGIN) / max(float((high - low).max()), 1e-9)
    places = MARGIN + (places - low) * scale
    ends = np.unique(np.sort(topology.edges, axis=1), axis=0)
    lines = "".join(
        f'<line x1="{places[a, 0]:.1f}" y1="{places[a, 1]:.1f}" '
        f'x2="{places[b, 0]:.1f}" y2="{places[b, 1]:.1f}"/>'
        for a, b in ends.tolist()
    )
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5"><title>client {client}</title></circle>'
        for client, (x, y) in enumerate(places.tolist())
    )
    return (
        f'<svg width="{SIZE}" height="{SIZE}" role="img" aria-label="{n} clients">'
        f'<g stroke="#888">{lines}</g><g fill="#2a6fbb">{dots}</g></svg>'
    )
