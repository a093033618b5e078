"""After a change of the roster: agree on the iteration to go on from, and give a model to those who have none.

Nodes learn of the change at different iterations, and some have no model: who joined, or never began. First everybody
tells its neighbours the earliest iteration it has heard of, and who has a model, as often as the longest way through
the graph is long; then all know both of all. They go on from the earliest iteration, each with the model it has, so
that nobody trains less than was asked for. Then, if somebody lacks a model, its neighbours send theirs for as many
rounds: it takes the mean of the first ones that reach it. Nobody needs the same model: a restart with γᵢ = ∇Lᵢ(θᵢ)
has Σγ = Σ∇L whatever the θᵢ are.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import csgraph, csr_array
from torch import Tensor

from tacit.graph import Graph
from tacit.peer.federation.manifest import Manifest
from tacit.peer.node.network import PeerNetwork


def meet(
    network: PeerNetwork,
    manifest: Manifest,
    name: str,
    step: int,
    steps: int,
    theta: Tensor | None,
    like: Tensor,
) -> tuple[int, Tensor | None]:
    """The iteration of at most `steps` and the model [P] to go on from; no model if nobody has one."""
    earliest, known = _flooded(
        network, manifest, name, steps if theta is None else step, theta is not None
    )
    if not known.any():
        return 0, None
    lacking = {
        member.name for member, has in zip(manifest.members, known.tolist(), strict=True) if not has
    }
    if lacking:
        theta = _given(network, manifest, name, lacking, theta, like)
    return min(earliest, steps), theta


def _flooded(
    network: PeerNetwork, manifest: Manifest, name: str, earliest: int, has_model: bool
) -> tuple[int, Tensor]:
    """The earliest iteration of all, and who has a model [N]."""
    place = manifest.position(name)
    assert place is not None
    known = torch.zeros(len(manifest.members), dtype=torch.uint8)
    known[place] = has_model
    for _ in range(longest_way(manifest.graph)):
        words = {"step": torch.tensor([earliest]), "known": known}
        heard = network.tell_each({one.name: words for one in manifest.out_neighbours(name)}, words)
        earliest = min([earliest, *(max(0, int(told["step"])) for told in heard)])
        known = torch.stack([known, *(told["known"] for told in heard)]).amax(0)
    return earliest, known


def _given(
    network: PeerNetwork,
    manifest: Manifest,
    name: str,
    lacking: set[str],
    theta: Tensor | None,
    like: Tensor,
) -> Tensor | None:
    """The own model, or the mean of the first that come; all take part, those who lack one listen."""
    for _ in range(longest_way(manifest.graph)):
        words = {"known": torch.tensor([theta is not None], dtype=torch.uint8)}
        with_model = words | {"theta": torch.zeros_like(like) if theta is None else theta}
        neighbours = [one.name for one in manifest.out_neighbours(name)]
        letters = {other: with_model if other in lacking else words for other in neighbours}
        heard = network.tell_each(letters, with_model if name in lacking else words)
        if theta is None:
            models = [told["theta"].double() for told in heard if int(told["known"])]
            theta = torch.stack(models).mean(0).to(like.dtype) if models else None
    return theta


def longest_way(graph: Graph) -> int:
    """The most hops that it takes from one client to another."""
    source, target = graph.edges.T
    links = csr_array(
        (np.ones(len(source)), (source, target)), shape=(graph.clients, graph.clients)
    )
    return int(csgraph.shortest_path(links, unweighted=True).max())
