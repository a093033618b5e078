import numpy as np
import pytest
import torch

from tacit.core import native
from tacit.core.neighbourhood import Neighbourhood
from tacit.core.rows import CodedRows
from tacit.engines import product
from tacit.engines.stacked import StackedNetwork
from tacit.graph import Graph, Topology

# Less than a quarter of each W is filled, so that sparse products are possible.
GRAPHS = {
    "ring": Topology.ring(16).mixing("metropolis"),
    "star": Topology.star(20).mixing("laplacian"),
    "directed ring": Topology.directed_ring(16).mixing("sinkhorn", seed=3),
    "random directed": Topology.random_directed(24, 0.08, seed=1).mixing("sinkhorn", seed=2),
    "lazy grid": Topology.grid(4, 6).mixing("metropolis", lazy=True),
}


def network(graph, *, dense, dtype=torch.float64):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(product, "DENSE", 10**6 if dense else -1)
        if dense:
            patch.setattr(native, "supports", lambda rows: False)
        net = StackedNetwork(graph, dtype, "cpu")
    assert (net._weights._dense is not None) == dense
    return net


def rows(count, width=5, seed=0):
    return torch.randn(
        count, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )


@pytest.fixture(params=GRAPHS)
def graph(request):
    return GRAPHS[request.param]


@pytest.mark.parametrize("dense", [True, False])
def test_mix_is_the_product_with_w(graph, dense):
    x, y = rows(graph.clients), rows(graph.clients, width=2, seed=1)
    mixed_x, mixed_y = network(graph, dense=dense).mix(theta=x, gamma=y)
    torch.testing.assert_close(mixed_x, graph.W @ x, rtol=1e-14, atol=1e-14)
    torch.testing.assert_close(mixed_y, graph.W @ y, rtol=1e-14, atol=1e-14)


def test_a_full_graph_is_dense_however_many_clients(monkeypatch):
    monkeypatch.setattr(product, "DENSE", -1)
    assert (
        StackedNetwork(Topology.complete(6).mixing(), torch.float64, "cpu")._weights._dense
        is not None
    )


@pytest.mark.parametrize("dense", [True, False])
def test_results_belong_to_the_caller(graph, dense):
    x = rows(graph.clients)
    net = network(graph, dense=dense)
    before = x.clone()
    (mixed,) = net.mix(x=x)
    first = mixed.clone()
    mixed.fill_(torch.nan)
    assert torch.equal(x, before)
    assert torch.equal(net.mix(x=x)[0], first)


def test_two_results_of_one_call_do_not_share_memory(graph):
    x = rows(graph.clients)
    a, b = network(graph, dense=True).mix(a=x, b=x)
    kept = b.clone()
    a.zero_()
    assert torch.equal(b, kept)


def test_send_delivers_to_the_other_end(graph):
    here = Neighbourhood.of(graph.edges, np.arange(graph.clients))
    messages = torch.stack([here.out_source, here.out_target], dim=1).double()
    before = messages.clone()
    arrived = network(graph, dense=True).send("message", messages, private=True)
    assert torch.equal(arrived, torch.stack([here.in_source, here.in_target], dim=1).double())
    arrived.fill_(-1)
    assert torch.equal(messages, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bytes_are_counted_exactly(graph, dtype):
    net = network(graph, dense=True, dtype=dtype)
    edges, size = len(graph.edges), torch.finfo(dtype).bits // 8
    assert net.bytes_sent == 0
    net.mix(theta=rows(graph.clients, 5).to(dtype), gamma=rows(graph.clients, 2).to(dtype))
    assert net.bytes_sent == edges * (5 + 2) * size
    net.send("z", torch.zeros(edges, 3, dtype=dtype))
    assert net.bytes_sent == edges * (5 + 2 + 3) * size


def test_one_client_alone_keeps_its_row():
    graph = Graph.from_matrix(np.ones((1, 1)))
    net = StackedNetwork(graph, torch.float64, "cpu")
    assert torch.equal(net.mix(x=rows(1))[0], rows(1))
    assert net.bytes_sent == 0


def test_rows_that_travel_encoded_count_by_their_bytes_and_mix_as_decoded(graph):
    net, x = network(graph, dense=True), rows(graph.clients)
    bytes_of = lambda *_: pytest.fail("the bytes are not needed")  # noqa: E731
    (mixed,) = net.mix(x=CodedRows(x, lambda: 7, bytes_of, bytes_of))
    torch.testing.assert_close(mixed, graph.W @ x, rtol=1e-14, atol=1e-14)
    assert net.bytes_sent == 7 * len(graph.edges)


def test_the_server_returns_the_mean_and_is_counted_both_ways(graph):
    net, x = network(graph, dense=True), rows(graph.clients)
    before = x.clone()
    (mean,) = net.average(grad=x)
    torch.testing.assert_close(mean, x.mean(0).expand_as(x))
    assert net.bytes_sent == 2 * graph.clients * 5 * 8
    mean[0].zero_()  # a tensor of the caller's own, row by row
    assert torch.equal(x, before)
    assert float(mean[1].abs().max()) > 0
