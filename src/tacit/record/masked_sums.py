"""What clients send each other to compute a masked sum along a spanning tree."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.core.fixed_point import MODULUS, IntegerRows, wrapped
from tacit.graph.spanning_tree import SpanningTree


@dataclass(frozen=True, eq=False)
class TreeMessages:
    """Rows from `source` to `target` [k], in the units of the clients' numbers."""

    tag: str
    source: Tensor
    target: Tensor
    rows: Tensor


def tree_messages(tag: str, sent: IntegerRows, tree: SpanningTree) -> list[TreeMessages]:
    """The masked sums that clients send to their parents, and the total that parents send down."""
    sums = sent.masked()
    for client in tree.bottom_up.tolist():
        parent = int(tree.parent[client])
        sums[parent] = wrapped(sums[parent] + sums[client])
    below, _ = torch.as_tensor(tree.bottom_up).sort()
    parents = torch.as_tensor(tree.parent)[below]
    sums = unit_of(sent) * sums.double()
    total = sums[tree.root].expand(len(below), -1)
    return [
        TreeMessages(f"{tag}/up", below, parents, sums[below.to(sums.device)]),
        TreeMessages(f"{tag}/down", parents, below, total),
    ]


def unit_of(sent: IntegerRows) -> float:
    """The number that the integer 1 stands for."""
    return sent.modulus / MODULUS
