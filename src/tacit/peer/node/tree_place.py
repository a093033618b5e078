"""A node's place in the spanning tree along which masked sums are computed."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.graph.spanning_tree import SpanningTree
from tacit.peer.federation.manifest import Manifest


@dataclass(frozen=True)
class TreePlace:
    """A node's place in the spanning tree of totals.

    Attributes:
        parent: The name of the parent; None for the root.
        children: The names of the children.
    """

    parent: str | None
    children: tuple[str, ...]

    @classmethod
    def of(cls, manifest: Manifest, name: str) -> TreePlace:
        """The place of a node in the tree that every member computes from the roster."""
        graph, names = manifest.graph, manifest.names
        tree, own = SpanningTree.of(graph.edges, graph.clients), manifest.position(name)
        parent = int(tree.parent[own])
        above = None if parent < 0 else names[parent]
        return cls(above, tuple(names[child] for child in tree.children(own)))
