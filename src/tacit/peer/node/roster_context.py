"""Everything of a node that belongs to one generation: its place in the graph, its lines, its keys, and its first state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.algorithms.algorithm import Algorithm, gradients_per_step
from tacit.core.here import Here, Objective
from tacit.core.neighbourhood import Neighbourhood
from tacit.engines.gradients.objective import HostedObjective
from tacit.peer.federation.manifest import Manifest
from tacit.peer.node.local_data import LocalData
from tacit.peer.node.network import PeerNetwork
from tacit.peer.node.rejoin import meet
from tacit.peer.node.state import NodeState
from tacit.peer.wire.neighbour_client import NeighbourClient
from tacit.privacy.keystreams import KeyRing


@dataclass(frozen=True, eq=False)
class RosterContext:
    """The client of this node as an algorithm sees it, and its network."""

    manifest: Manifest
    network: PeerNetwork
    here: Here

    @classmethod
    def of(cls, desk: NodeState, algorithm: Algorithm, share: LocalData) -> RosterContext:
        """The stage of the roster that the node goes by."""
        manifest, folder = desk.manifest, desk.folder
        member, position = manifest.member(desk.name), manifest.position(desk.name)
        assert position is not None
        own, ca = folder.credentials(), folder.ca()
        lines = [
            NeighbourClient(desk, neighbour, own, ca)
            for neighbour in manifest.in_neighbours(desk.name)
        ]
        network = PeerNetwork(desk, lines)
        graph, run, task = manifest.graph, manifest.config.run, share.task
        neighbourhood = Neighbourhood.of(
            graph.edges, np.array([position]), run.device, graph.weights.diagonal()[[position]]
        )
        feed = task.feed(
            torch.tensor([member.number]), run.seed, run.device, places=torch.tensor([share.place])
        )
        objective = HostedObjective(
            task.on(run.device), [member.number], feed, "looped", run.seed, run.device
        )
        keys = KeyRing(
            federation=manifest.federation,
            generation=manifest.generation,
            names=[one.name for one in manifest.members],
            publics=[one.mask_key for one in manifest.members],
            secrets={position: folder.mask_secret()},
        )
        randomness = keys.randomness(task.parameters, task.dtype)
        here = Here(neighbourhood, network, objective, randomness, gradients_per_step(algorithm))
        return cls(manifest, network, here)

    def first_state(
        self, algorithm: Algorithm, name: str, step: int, steps: int, theta: Tensor | None
    ) -> tuple[Any, int]:
        """The state to begin the generation with, and its iteration; `theta` [1, P] is the model so far, if there is one."""
        here = self.here
        if self.manifest.generation > 1:
            like = here.theta0[0]
            step, row = meet(
                self.network,
                self.manifest,
                name,
                step,
                steps,
                None if theta is None else theta[0],
                like,
            )
            if row is not None:
                here = replace(here, objective=StartingFrom(here.objective, row[None]))
        self.network.at(step)
        return algorithm.start(replace(here, t=step, tick=step)), step


@dataclass(frozen=True, eq=False)
class StartingFrom:
    """An objective whose first models are given: see tacit.core.here.Objective."""

    objective: Objective
    theta: Tensor

    def theta0(self) -> Tensor:
        """The given models."""
        return self.theta.clone()

    def grad(self, theta: Tensor, number: int, spent: Tensor | None = None) -> Tensor:
        """That of the objective."""
        return self.objective.grad(theta, number, spent)

    def minimise(self, linear: Tensor, curvature: Tensor, number: int) -> Tensor:
        """That of the objective."""
        return self.objective.minimise(linear, curvature, number)
