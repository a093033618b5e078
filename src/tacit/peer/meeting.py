"""After a change of the roster: agree on the iteration to go on from, and give newcomers the current model.

Nodes learn of the change at different iterations. Each tells its neighbours the earliest iteration it has heard of,
as often as the longest way through the graph is long; then all know the earliest of all and go on from there, each
with the model it has, so that nobody trains less than was asked for. A newcomer takes the mean of the first models
that reach it. Nobody needs the same model: a restart with γᵢ = ∇Lᵢ(θᵢ) has Σγ = Σ∇L whatever the θᵢ are.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import csgraph, csr_array
from torch import Tensor

from tacit.graph import Graph
from tacit.peer.manifest import Manifest
from tacit.peer.network import PeerNetwork


def meet(
    network: PeerNetwork,
    manifest: Manifest,
    name: str,
    step: int,
    steps: int,
    theta: Tensor | None,
    like: Tensor,
) -> tuple[int, Tensor | None]:
    """The iteration of at most `steps` and the model [P] to go on from; no model comes in for a newcomer."""
    newcomers = {member.name for member in manifest.members if is_newcomer(member.since, manifest.epoch)}
    earliest = steps if name in newcomers else step
    for _ in range(longest_way(manifest.graph)):
        words = {
            "step": torch.tensor([earliest]),
            "known": torch.tensor([theta is not None], dtype=torch.uint8),
        }
        with_model = words | {"theta": torch.zeros_like(like) if theta is None else theta}
        letters = {
            member.name: with_model if member.name in newcomers else words
            for member in manifest.out_neighbours(name)
        }
        heard = network.tell_each(letters, with_model if name in newcomers else words)
        earliest = min([earliest, *(max(0, int(told["step"])) for told in heard)])
        if theta is None:
            models = [told["theta"].double() for told in heard if int(told["known"])]
            theta = torch.stack(models).mean(0).to(like.dtype) if models else None
    return earliest, theta


def is_newcomer(since: int, epoch: int) -> bool:
    """Whether somebody joined by the roster of this epoch; at first nobody does, as all begin together."""
    return since == epoch > 1


def longest_way(graph: Graph) -> int:
    """The most hops that it takes from one client to another."""
    source, target = graph.edges.T
    links = csr_array((np.ones(len(source)), (source, target)), shape=(graph.clients, graph.clients))
    return int(csgraph.shortest_path(links, unweighted=True).max())
