"""What a node builds for one generation: its network, its keys, and the first state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.algorithms.algorithm import Algorithm
from tacit.core.hosted_clients import Objective
from tacit.core.neighbourhood import Neighbourhood
from tacit.engines.gradients.objective import HostedObjective
from tacit.engines.lazy_clients import LazyClients
from tacit.engines.lazy_rows import evaluated_state
from tacit.peer.federation.manifest import Manifest
from tacit.peer.node.local_data import LocalData
from tacit.peer.node.neighbour_client import NeighbourClient
from tacit.peer.node.network import PeerNetwork
from tacit.peer.node.node_state import NodeState
from tacit.peer.node.rejoin import rejoin
from tacit.privacy.keystreams import KeyRing


@dataclass(frozen=True, eq=False)
class RosterContext:
    """What an algorithm sees of this node under one roster."""

    manifest: Manifest
    network: PeerNetwork
    here: LazyClients

    @classmethod
    def build(cls, state: NodeState, algorithm: Algorithm, local: LocalData) -> RosterContext:
        """Build it for the active roster."""
        manifest, folder = state.manifest, state.folder
        member = manifest.member(state.name)
        position = manifest.members.index(member)
        own, ca = folder.credentials(), folder.ca()
        network = PeerNetwork(
            state,
            [
                NeighbourClient(state, neighbour, own, ca)
                for neighbour in manifest.in_neighbours(state.name)
            ],
        )
        graph, run, task = manifest.graph, manifest.config.run, local.task
        neighbourhood = Neighbourhood.of(
            graph.edges, np.array([position]), run.device, graph.weights.diagonal()[[position]]
        )
        loader = task.loader(
            torch.tensor([member.number]),
            run.seed,
            run.device,
            positions=torch.tensor([local.index]),
        )
        objective = HostedObjective(
            task.to(run.device), [member.number], loader, "looped", run.seed, run.device
        )
        keys = KeyRing(
            federation=manifest.federation,
            generation=manifest.generation,
            names=[one.name for one in manifest.members],
            publics=[one.mask_key for one in manifest.members],
            secrets={position: folder.mask_secret()},
        )
        randomness = keys.randomness(task.parameters, task.dtype)
        here = LazyClients(
            neighbourhood, network, objective, randomness, algorithm.gradients_per_step
        )
        return cls(manifest, network, here)

    def start(
        self, algorithm: Algorithm, step: int, steps: int, theta: Tensor | None
    ) -> tuple[Any, int]:
        """Start the algorithm; return its first state and the iteration of that.

        This node has done `step` of `steps` iterations and has the model `theta` [1, P], if any.
        """
        here = self.here
        if self.manifest.generation > 1:
            own = None if theta is None else theta[0]
            step, row = rejoin(self.network, step, steps, own, here.theta0[0])
            if row is not None:
                here = replace(here, objective=StartingFrom(here.objective, row[None]))
        self.network.start_tick(step)
        return replace(here, t=step, tick=step).start(algorithm), step

    def step(self, algorithm: Algorithm, state: Any, t: int) -> Any:
        """The state after iteration t, rounded as in a simulation."""
        self.network.start_tick(t + 1)
        here = self.here.at(t)
        return evaluated_state(algorithm.step(here.lazy_state(state), here))


@dataclass(frozen=True, eq=False)
class StartingFrom:
    """An objective with given first models: see tacit.core.here.Objective."""

    objective: Objective
    theta: Tensor

    def theta0(self) -> Tensor:
        return self.theta.clone()

    def grad(self, theta: Tensor, number: int, out: Tensor | None = None) -> Tensor:
        return self.objective.grad(theta, number, out)

    def minimise(self, linear: Tensor, curvature: Tensor, number: int) -> Tensor:
        return self.objective.minimise(linear, curvature, number)
