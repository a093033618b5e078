"""Restart under a new roster: agree on an iteration, and give models to nodes without one.

Nodes learn of the change at different iterations. Nodes that joined or never started have no model.

1. Every node tells its neighbours the earliest iteration it knows of and which nodes have a model.
   After as many exchanges as the diameter of the graph, all nodes know both. They continue from the
   earliest iteration, each with its own model, so that no node trains less than was requested.
2. If nodes lack a model, their neighbours send theirs, again as often as the diameter. Such a node
   takes the mean of the first models that reach it.

The models need not be equal: a restart with γᵢ = ∇Lᵢ(θᵢ) has Σγ = Σ∇L for any θᵢ.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import csgraph, csr_array
from torch import Tensor

from tacit.graph import Graph
from tacit.peer.node.network import PeerNetwork


def rejoin(
    network: PeerNetwork, step: int, steps: int, theta: Tensor | None, like: Tensor
) -> tuple[int, Tensor | None]:
    """Agree with all nodes on how to continue.

    Args:
        network: The network in the new generation.
        step: Iterations that this node has done.
        steps: Iterations of the whole run.
        theta: This node's model [P], if it has one.
        like: Any model [P], for type and shape.

    Returns:
        The iteration to continue from, and this node's model; None if no node has one.
    """
    members = network.manifest.members
    has_model = torch.tensor(
        [member.name == network.name and theta is not None for member in members],
        dtype=torch.uint8,
    )
    earliest, has_model = _agree(network, steps if theta is None else step, has_model)
    if not has_model.any():
        return 0, None
    lacking = {member.name for member, has in zip(members, has_model, strict=True) if not has}
    if lacking:
        theta = _share_models(network, lacking, theta, like)
    return min(earliest, steps), theta


def _agree(network: PeerNetwork, earliest: int, has_model: Tensor) -> tuple[int, Tensor]:
    """The earliest iteration of all nodes, and which of them have a model [N]."""
    receivers = network.manifest.out_neighbours(network.name)
    for _ in range(diameter(network.manifest.graph)):
        ours = {"step": torch.tensor([earliest]), "has_model": has_model}
        theirs = network.exchange_tensors({member.name: ours for member in receivers}, ours)
        earliest = min([earliest, *(max(0, int(one["step"])) for one in theirs)])
        has_model = torch.stack([has_model, *(one["has_model"] for one in theirs)]).amax(0)
    return earliest, has_model


def _share_models(
    network: PeerNetwork, lacking: set[str], theta: Tensor | None, like: Tensor
) -> Tensor | None:
    """This node's model, or the mean of the first that reach it; all nodes take part."""
    receivers = [member.name for member in network.manifest.out_neighbours(network.name)]
    for _ in range(diameter(network.manifest.graph)):
        flag = {"has_model": torch.tensor([theta is not None], dtype=torch.uint8)}
        with_model = flag | {"theta": torch.zeros_like(like) if theta is None else theta}
        messages = {name: with_model if name in lacking else flag for name in receivers}
        theirs = network.exchange_tensors(messages, with_model if network.name in lacking else flag)
        if theta is None:
            models = [one["theta"].double() for one in theirs if int(one["has_model"])]
            theta = torch.stack(models).mean(0).to(like.dtype) if models else None
    return theta


def diameter(graph: Graph) -> int:
    """The most hops between two clients."""
    source, target = graph.edges.T
    links = csr_array(
        (np.ones(len(source)), (source, target)), shape=(graph.clients, graph.clients)
    )
    return int(csgraph.shortest_path(links, unweighted=True).max())
