"""Clients hosted with a network of your own: what an engine, or a node, begins with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from tacit.core.here import Network
from tacit.core.hosted_clients import HostedClients
from tacit.core.neighbourhood import Neighbourhood
from tacit.core.workers import WorkerPool
from tacit.engines.gradients.objective import HostedObjective
from tacit.engines.randomness import make_randomness
from tacit.engines.setting import Setting


def host(setting: Setting, net: Network, ids: Sequence[int] | None = None) -> HostedClients:
    """The clients of a setting as an algorithm sees them, with a network of your own.

    Gradients are computed one client after the other: plain, and obviously right.

    Args:
        setting: What determines the run.
        net: Has those of the methods `mix`, `send`, `total` and `average` that the algorithm calls.
        ids: Which clients are hosted here; by default all.

    Returns:
        `here` for `algorithm.start(here)`; for step t, `algorithm.step(state, here.at(t))`.

    Example:
        >>> import tacit, torch
        >>> class Alone:
        ...     def mix(self, **rows):
        ...         return tuple(rows.values())
        >>> task = tacit.quadratic(torch.eye(2).repeat(3, 1, 1), torch.ones(3, 2))
        >>> graph = tacit.Topology.ring(3).mixing()
        >>> here = tacit.host(tacit.Setting(tacit.DPSGD(lr=0.1), task, graph), Alone())
        >>> here.theta0.shape
        torch.Size([3, 2])
    """
    setting.check()
    algorithm, task, graph, seed = setting.algorithm, setting.task, setting.graph, int(setting.seed)
    hosted = list(range(graph.clients)) if ids is None else sorted(int(client) for client in ids)
    pool = WorkerPool(1)
    loader = task.loader(torch.tensor(hosted), seed, "cpu")
    return HostedClients(
        Neighbourhood.of(graph.edges, np.array(hosted), weights=graph.weights),
        net,
        HostedObjective(task, hosted, loader, "looped", seed, "cpu", pool),
        make_randomness(setting.prg, seed, task, pool),
        algorithm.gradients_per_step,
    )
