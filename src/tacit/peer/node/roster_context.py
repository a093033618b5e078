"""What a node builds for one generation: its network, its keys, and the first state.

After a change of the roster, nodes agree on an iteration and give models to nodes without one:
nodes learn of the change at different iterations, and those that joined or never started have no
model.

1. Every node tells its neighbours the earliest iteration it knows of and which nodes have a model.
   After as many exchanges as the diameter of the graph, all nodes know both. They continue from the
   earliest iteration, each with its own model, so that no node trains less than was requested. But
   they go back no further than each of them accepts: see tacit.peer.node.going_back. Nodes that
   are further behind count as nodes without a model.
2. If nodes lack a model, their neighbours send theirs, again as often as the diameter. Such a node
   takes the mean of the first models that reach it.

The models need not be equal: a restart with γᵢ = ∇Lᵢ(θᵢ) has Σγ = Σ∇L for any θᵢ. Algorithms that
train one model by totals need one: there, nodes continue from the latest iteration, and those that
are behind take the model of those ahead. No sum that was paid from a budget is computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import networkx as nx
import numpy as np
import torch
from torch import Tensor

from tacit.algorithms.algorithm import Algorithm
from tacit.core.neighbourhood import Neighbourhood
from tacit.engines.gradients.objective import HostedObjective
from tacit.engines.gradients.personal import LocalRows, PersonalObjective
from tacit.engines.lazy_clients import LazyClients
from tacit.engines.lazy_rows import evaluated_state
from tacit.graph import Graph
from tacit.peer.federation.manifest import Manifest
from tacit.peer.node.going_back import RejoinLimits
from tacit.peer.node.local_data import LocalData
from tacit.peer.node.neighbour_client import NeighbourClient
from tacit.peer.node.network import CheckSent, PeerNetwork
from tacit.peer.node.node_state import NodeState
from tacit.privacy.keystreams import KeyRing

ANY_ITERATION = RejoinLimits()


@dataclass(frozen=True, eq=False)
class RosterContext:
    """What an algorithm sees of this node under one roster."""

    manifest: Manifest
    network: PeerNetwork
    objective: HostedObjective | PersonalObjective
    keys: KeyRing
    here: LazyClients

    @classmethod
    def build(
        cls, state: NodeState, algorithm: Algorithm, local: LocalData, check_sent: CheckSent
    ) -> RosterContext:
        """All but the salts of the keys, which the nodes agree on over the network.

        Args:
            state: What the threads of this node share.
            algorithm: The algorithm of the federation.
            local: The data of this node.
            check_sent: Called with the digest of what is sent in an exchange, before it is sent.
        """
        manifest, folder = state.manifest, state.folder
        position, number = manifest.position(state.name), manifest.member(state.name).number
        neighbours = manifest.in_neighbours(state.name)
        clients = [NeighbourClient(state, one) for one in neighbours]
        network = PeerNetwork(state, clients, check_sent, state.transcript)
        graph, run, task = manifest.graph, manifest.config.run, local.task
        neighbourhood = Neighbourhood.of(
            graph.edges, np.array([position]), run.device, graph.weights
        )
        objective = _objective(manifest, number, local, algorithm)
        keys = KeyRing(
            federation=manifest.federation,
            generation=manifest.number,
            names=manifest.names,
            publics=[one.mask_key for one in manifest.members],
            secrets={position: folder.mask_secret()},
        )
        randomness = keys.randomness(task.parameters, task.dtype)
        here = LazyClients(
            neighbourhood, network, objective, randomness, algorithm.gradients_per_step
        )
        return cls(manifest, network, objective, keys, here)

    @property
    def local_rows(self) -> LocalRows | None:
        """The local parameters of this node; None if all are shared."""
        own = self.objective
        return own.rows if isinstance(own, PersonalObjective) else None

    def with_salts(self, salts: Mapping[str, bytes]) -> RosterContext:
        """This context with the salts of all members in its keys, by name."""
        at = {self.manifest.position(name): salt for name, salt in salts.items()}
        keys, task = replace(self.keys, salts=at), self.objective.task
        here = replace(self.here, randomness=keys.randomness(task.parameters, task.dtype))
        return replace(self, keys=keys, here=here)

    def with_data(self, local: LocalData, algorithm: Algorithm) -> RosterContext:
        """This context with the node's data as they are after all members agreed on scales."""
        number = self.manifest.members[int(self.here.graph.ids[0])].number
        objective = _objective(self.manifest, number, local, algorithm)
        return replace(self, objective=objective, here=replace(self.here, objective=objective))

    def start(
        self,
        algorithm: Algorithm,
        step: int,
        steps: int,
        theta: Tensor | None,
        limits: RejoinLimits = ANY_ITERATION,
    ) -> tuple[Any, int]:
        """Start the algorithm; return its first state and the iteration of that.

        This node has done `step` of `steps` iterations and has the model `theta` [1, P], if any.
        """
        here = self.here
        if self.manifest.number > 1:
            own = None if theta is None else theta[0]
            common = algorithm.needs_total
            like = here.theta0[0]
            step, row = rejoin(self.network, step, steps, own, like, common=common, limits=limits)
            if row is not None:
                first = row[None]
                task = replace(self.objective.task, initial=lambda seed, clients: first.clone())
                here = replace(here, objective=replace(self.objective, task=task))
        self.network.start_tick(step)
        return replace(here, t=step, tick=step).start(algorithm), step

    def step(self, algorithm: Algorithm, state: Any, t: int) -> Any:
        """The state after iteration t, rounded as in a simulation."""
        self.network.start_tick(t + 1)
        here = self.here.at(t)
        return evaluated_state(algorithm.step(here.lazy_state(state), here))


def _objective(
    manifest: Manifest, number: int, local: LocalData, algorithm: Algorithm
) -> HostedObjective | PersonalObjective:
    """The gradients of this node, which has the permanent number `number`."""
    run, task = manifest.config.run, local.task
    own_part = torch.tensor([local.index])
    loader = task.loader(torch.tensor([number]), run.seed, run.device, positions=own_part)
    task = task.to(run.device)
    whole = HostedObjective(
        task.whole, [number], loader, "looped", run.seed, run.device, precision=run.precision
    )
    return whole if task.local is None else PersonalObjective.of(task, whole, algorithm)


def rejoin(
    network: PeerNetwork,
    step: int,
    steps: int,
    theta: Tensor | None,
    like: Tensor,
    *,
    common: bool = False,
    limits: RejoinLimits = ANY_ITERATION,
) -> tuple[int, Tensor | None]:
    """Agree with all nodes on how to continue.

    Args:
        network: The network in the new generation.
        step: Iterations that this node has done.
        steps: Iterations of the whole run.
        theta: This node's model [P], if it has one.
        like: Any model [P], for type and shape.
        common: Whether all nodes must continue from one model. Those that are behind others then
            take theirs; nodes of one iteration have the same.
        limits: What this node accepts.

    Returns:
        The iteration to continue from, and this node's model; None if no node has one.
    """
    names = network.manifest.names
    has_model = torch.zeros(len(names), dtype=torch.uint8)
    has_model[names.index(network.name)] = theta is not None
    choose = max if common else min
    if theta is None:
        step, limits = (0 if common else steps), ANY_ITERATION
    chosen, floor, has_model = _agree(network, step, has_model, choose, limits)
    if not has_model.any():
        return 0, None
    agreed = max(chosen, floor)
    if common or chosen < agreed:
        # Those that are behind take the model of the others.
        behind = step != agreed if common else step < agreed
        theta = None if behind else theta
        has_model = torch.zeros_like(has_model)
        has_model[names.index(network.name)] = theta is not None
        *_, has_model = _agree(network, agreed, has_model, choose, ANY_ITERATION)
    lacking = {name for name, has in zip(names, has_model, strict=True) if not has}
    if lacking:
        theta = _share_models(network, lacking, theta, like)
    return min(agreed, steps), theta


def _agree(
    network: PeerNetwork,
    step: int,
    has_model: Tensor,
    choose: Callable[[list[int]], int],
    limits: RejoinLimits,
) -> tuple[int, int, Tensor]:
    """The earliest or latest iteration of all nodes, the highest floor, and who has a model [N]."""
    receivers, floor = network.manifest.out_neighbours(network.name), limits.floor
    for _ in range(diameter(network.manifest.graph)):
        ours = {"step": torch.tensor([step, floor]), "has_model": has_model}
        theirs = network.exchange({member.name: ours for member in receivers}, ours)
        claims = torch.stack([one["step"].clamp(min=0) for one in theirs] or [ours["step"]])
        believed = [claim for claim in claims.T[0].tolist() if claim <= limits.ceiling]
        floors = [claim for claim in claims.T[1].tolist() if claim <= limits.ceiling]
        step, floor = choose([step, *believed]), max([floor, *floors])
        has_model = torch.stack([has_model, *(one["has_model"] for one in theirs)]).amax(0)
    return step, floor, has_model


def _share_models(
    network: PeerNetwork, lacking: set[str], theta: Tensor | None, like: Tensor
) -> Tensor | None:
    """This node's model, or the mean of the first that reach it; all nodes take part."""
    receivers = [member.name for member in network.manifest.out_neighbours(network.name)]
    for _ in range(diameter(network.manifest.graph)):
        flag = {"has_model": torch.tensor([theta is not None], dtype=torch.uint8)}
        with_model = flag | {"theta": torch.zeros_like(like) if theta is None else theta}
        messages = {name: with_model if name in lacking else flag for name in receivers}
        theirs = network.exchange(messages, with_model if network.name in lacking else flag)
        if theta is None:
            models = [one["theta"].double() for one in theirs if int(one["has_model"])]
            theta = torch.stack(models).mean(0).to(like.dtype) if models else None
    return theta


def diameter(graph: Graph) -> int:
    """The most hops between two clients."""
    return int(nx.diameter(graph.topology.to_networkx()))
