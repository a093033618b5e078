import warnings

import pytest
import torch

import tacit
from tacit import DSGT, LPPA, Misuse, Setting, Simulation, Topology, quadratic
from tacit.core.errors import Caution


def task(clients):
    return quadratic(torch.eye(2).repeat(clients, 1, 1), torch.ones(clients, 2))


@pytest.mark.parametrize(
    ("topology", "exposed"),
    [
        (Topology.star(4), "3 of 4 clients"),
        (Topology.ring(2), "2 of 2 clients"),
        (Topology.from_edges([(0, 1), (1, 2), (2, 0), (2, 3)]), "1 of 4 clients"),
    ],
)
def test_lppa_cautions_about_clients_with_a_single_neighbour(topology, exposed):
    graph = topology.mixing("metropolis")
    with pytest.warns(Caution, match=exposed):
        tacit.run(task(graph.clients), LPPA(lr=0.1), graph, steps=1)


def test_there_is_no_caution_with_two_neighbours_or_without_masks():
    assert LPPA(lr=0.1).cautions(Topology.directed_ring(3).mixing("sinkhorn")) == []
    assert DSGT(lr=0.1).cautions(Topology.star(4).mixing("metropolis")) == []
    graph = Topology.ring(4).mixing("metropolis")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tacit.run(task(4), LPPA(lr=0.1), graph, steps=1)


def test_that_neighbour_really_can_subtract_the_masks():
    """The leaf of a star sends γ⁰; the hub knows both of its masks and finds the gradient."""
    graph = Topology.star(4).mixing("metropolis")
    algorithm = LPPA(lr=0.1)
    simulation = Simulation(Setting(algorithm, task(4), graph))
    simulation.start()
    rows = simulation.here.edge_noise("delta", algorithm.noise)[0].tensor()
    delta = dict(zip(map(tuple, graph.edges.tolist()), rows, strict=True))
    unmasked = simulation.state.gamma[2] - delta[2, 0] + delta[0, 2]
    torch.testing.assert_close(unmasked, simulation.state.grad[2])


@pytest.mark.parametrize("noise", [0.1, None, "laplace"])
def test_noise_must_be_a_law(noise):
    with pytest.raises(Misuse, match="Give a distribution"):
        LPPA(lr=0.1, noise=noise)
