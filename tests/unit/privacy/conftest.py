import numpy as np
import pytest
import torch

from tacit import Topology
from tacit.core.hosted_clients import HostedClients
from tacit.core.neighbourhood import Neighbourhood
from tacit.core.randomness import Philox
from tacit.engines.stacked import StackedNetwork


@pytest.fixture
def hosted():
    """Clients on a ring, with numbers for noise and nothing to minimise."""

    def make(clients, width, seed=0, dtype=torch.float64):
        graph = Topology.ring(clients).mixing("metropolis", lazy=True)
        here = Neighbourhood.of(graph.edges, np.arange(clients), "cpu", graph.weights)
        return HostedClients(
            here, StackedNetwork(graph, dtype, "cpu"), None, Philox(seed, width, dtype)
        )

    return make
