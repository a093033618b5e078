"""How nodes learn the salts of all members: the first exchanges under a roster.

A key includes the salts of both ends of an edge. In a directed graph a node receives nothing from
those that it only sends to, so nodes pass on all salts that they know. After as many exchanges as
the diameter of the graph, every node knows all of them, and one more shows that its neighbours know
the same. Salts are no secrets: a key also depends on the secret that its two ends share.

A node that has lost its state has another salt than the one that its neighbours have stored. It
rejects what they pass on, waits, and says why.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.peer.node.fresh_keys import SALT_BYTES
from tacit.peer.node.network import PeerNetwork
from tacit.peer.node.roster_context import diameter
from tacit.peer.wire.messages import Rejected, Tensors


def agree_on_salts(network: PeerNetwork, own: bytes) -> dict[str, bytes]:
    """The salts of all members by name.

    Args:
        network: The network under a new roster.
        own: The salt of this node.
    """
    names = network.manifest.names
    # A row of zeros is not known yet.
    known = torch.zeros(len(names), SALT_BYTES, dtype=torch.uint8)
    known[names.index(network.name)] = torch.tensor(list(own), dtype=torch.uint8)

    def merge(found: dict[str, Tensor]) -> Tensors:
        nonlocal known
        known = _merged(known, found["salts"], names)
        return found

    receivers = network.manifest.out_neighbours(network.name)
    for _ in range(diameter(network.manifest.graph) + 1):
        ours = {"salts": known}
        network.exchange({member.name: ours for member in receivers}, ours, merge)
    return {name: bytes(row.tolist()) for name, row in zip(names, known, strict=True)}


def _merged(ours: Tensor, theirs: Tensor, names: list[str]) -> Tensor:
    """All salts that one of two nodes knows; raise Rejected if they know different ones."""
    known, found = (ours != 0).any(1), (theirs != 0).any(1)
    differ = known & found & (ours != theirs).any(1)
    if differ.any():
        name = names[int(differ.nonzero()[0])]
        raise Rejected(
            "salts",
            f"another salt of {name}, which has lost its state or has other data: remove it and "
            "add it under another name, or restart all nodes if none has trained yet",
        )
    return torch.where(known[:, None], ours, theirs)
