"""A node's place in the spanning tree along which masked sums are computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from tacit.graph.spanning_tree import SpanningTree
from tacit.peer.federation.manifest import Manifest
from tacit.peer.node.fresh_keys import FreshKeys, key_check
from tacit.peer.wire.messages import ExchangeId, Tensors


@dataclass(frozen=True)
class TreePlace:
    """A node's place in the spanning tree of totals.

    Attributes:
        parent: The name of the parent; None for the root.
        children: The names of the children.
        key_checks: By neighbour, a digest of the salts in the keys of both ends.
        check_sent: Called with the masked rows of an exchange before they are sent.
    """

    parent: str | None
    children: tuple[str, ...]
    key_checks: Mapping[str, str]
    check_sent: Callable[[ExchangeId, Tensor], None]

    @classmethod
    def of(
        cls, manifest: Manifest, name: str, salts: Mapping[str, bytes], keys: FreshKeys
    ) -> TreePlace:
        """The place of a node in the tree that every member computes from the roster."""
        graph, names = manifest.graph, manifest.names
        tree, own = SpanningTree.of(graph.edges, graph.clients), manifest.position(name)
        parent = int(tree.parent[own])
        return cls(
            None if parent < 0 else names[parent],
            tuple(names[child] for child in tree.children(own)),
            {
                other: key_check((name, salts[name]), (other, salt))
                for other, salt in salts.items()
                if other != name
            },
            keys.check_row,
        )

    def tagged(self, rows: Tensors, neighbour: str) -> Tensors:
        """Rows with tags that only match at a neighbour whose keys agree with this node's."""
        return {f"{tag}.{self.key_checks[neighbour]}": row for tag, row in rows.items()}


def untagged(tensors: Tensors) -> Tensors:
    """Rows without the key checks in their tags."""
    return {tag.rpartition(".")[0]: row for tag, row in tensors.items()}
