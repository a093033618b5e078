"""Mixing rules, the properties of their weights against dense linear algebra, and the refusals."""

import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy import sparse

from tacit.core.errors import Misuse
from tacit.graph import Graph, Topology, balancing, spectrum

UNDIRECTED = {
    "ring": lambda n, seed: Topology.ring(n),
    "complete": lambda n, seed: Topology.complete(n),
    "star": lambda n, seed: Topology.star(n),
    "grid": lambda n, seed: Topology.grid(3, n),
    "torus": lambda n, seed: Topology.torus(n, 2),
    "exponential": lambda n, seed: Topology.exponential(n, directed=False),
    "erdos_renyi": lambda n, seed: Topology.erdos_renyi(n, 0.7, seed),
    "geometric": lambda n, seed: Topology.random_geometric(n, 0.8, seed),
}
DIRECTED = {
    "directed_ring": lambda n, seed: Topology.directed_ring(n),
    "exponential": lambda n, seed: Topology.exponential(n),
    "random_directed": lambda n, seed: Topology.random_directed(n, 0.3, seed),
    "erdos_renyi": lambda n, seed: Topology.erdos_renyi(n, 0.8, seed, directed=True),
}
SIZES = st.integers(1, 20)
SEEDS = st.integers(0, 2**32)
PATH = Topology.from_edges([(i, i + 1) for i in range(9)])


def assert_doubly_stochastic(graph):
    W = graph.weights.toarray()
    assert W.min() >= 0
    assert np.abs(W.sum(axis=1) - 1).max() < 3e-15
    assert np.abs(W.sum(axis=0) - 1).max() < 1e-12
    assert graph.row_stochastic
    assert graph.column_stochastic
    assert graph.doubly_stochastic


def assert_only_on_edges(graph):
    """W[i, j] is positive exactly on the diagonal and where j sends to i."""
    pattern = np.eye(graph.clients, dtype=bool)
    pattern[graph.edges[:, 1], graph.edges[:, 0]] = True
    assert np.array_equal(graph.weights.toarray() > 0, pattern)


@pytest.mark.parametrize("rule", ["metropolis", "laplacian", "sinkhorn"])
@settings(max_examples=60, deadline=None)
@given(kind=st.sampled_from(sorted(UNDIRECTED)), n=SIZES, seed=SEEDS)
def test_rules_on_undirected_graphs(rule, kind, n, seed):
    graph = UNDIRECTED[kind](n, seed).mixing(rule)
    assert_doubly_stochastic(graph)
    assert_only_on_edges(graph)
    assert graph.symmetric
    assert np.array_equal(graph.weights.toarray(), graph.weights.toarray().T)
    assert graph.undirected
    assert graph.connected
    assert graph.primitive
    assert np.linalg.eigvalsh(graph.lazy().weights.toarray()).min() > 0
    assert graph.lazy().positive_definite


@settings(max_examples=80, deadline=None)
@given(
    kind=st.sampled_from(
        [*(("directed", k) for k in DIRECTED), *(("undirected", k) for k in UNDIRECTED)]
    ),
    n=SIZES,
    seed=SEEDS,
    entries=st.none() | SEEDS,
)
def test_sinkhorn_on_any_graph(kind, n, seed, entries):
    family = DIRECTED if kind[0] == "directed" else UNDIRECTED
    graph = family[kind[1]](n, seed).mixing("sinkhorn", seed=entries)
    assert_doubly_stochastic(graph)
    assert_only_on_edges(graph)
    assert graph.connected
    assert graph.primitive


def test_metropolis_and_laplacian_weights_by_hand():
    star = Topology.star(4)
    assert star.mixing("metropolis").W[1].tolist() == pytest.approx([1 / 4, 3 / 4, 0, 0])
    path = Topology.from_edges([(0, 1), (1, 2)])
    thirds = [[2 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1 / 3, 2 / 3]]
    assert path.mixing("metropolis").W.numpy() == pytest.approx(np.array(thirds))
    assert path.mixing("laplacian").W.numpy() == pytest.approx(np.array(thirds))
    quarters = np.eye(3) - np.array([[1, -1, 0], [-1, 2, -1], [0, -1, 1]]) / 4
    assert path.mixing("laplacian", kappa=4).W.numpy() == pytest.approx(quarters)


def test_sinkhorn_scales_the_drawn_entries_by_rows_and_columns():
    topology = Topology.complete(6)
    W = topology.mixing("sinkhorn", seed=7).weights.toarray()
    again = topology.mixing("sinkhorn", seed=7).weights.toarray()
    other = topology.mixing("sinkhorn", seed=8).weights.toarray()
    assert np.array_equal(W, again)
    assert np.abs(W - other).max() > 1e-3
    # On a directed ring, diag(r) A diag(c) keeps Π aᵢᵢ / Π aᵢ₊₁,ᵢ,
    # and the limit is constant on both bands.
    rng = np.random.default_rng([7, 1])
    entries = 1 - 0.9 * rng.random(10)
    ring = Topology.directed_ring(5).mixing("sinkhorn", seed=7).W.numpy()
    ratio = (entries[5:].prod() / entries[:5].prod()) ** (1 / 5)
    assert np.diag(ring) == pytest.approx(np.full(5, ratio / (1 + ratio)), abs=1e-11)


@pytest.mark.parametrize(
    "topology", [Topology.ring(700), Topology.directed_ring(2000), Topology.grid(30, 30)]
)
def test_newton_finishes_what_sinkhorn_would_take_too_long_for(topology, monkeypatch):
    assert_doubly_stochastic(topology.mixing("sinkhorn", seed=1))
    monkeypatch.setattr(balancing, "NEWTON_STEPS", 0)
    with pytest.raises(Misuse, match="did not converge on"):
        topology.mixing("sinkhorn", seed=1)


def test_newton_and_sinkhorn_have_the_same_limit(monkeypatch):
    topology = Topology.random_directed(15, 0.2)
    swept = topology.mixing("sinkhorn", seed=1).weights.toarray()
    monkeypatch.setattr(balancing, "SWEEPS", 3)
    assert topology.mixing("sinkhorn", seed=1).weights.toarray() == pytest.approx(swept, abs=1e-11)


def test_lazy_is_halfway_to_the_identity():
    graph = Topology.ring(5).mixing()
    assert torch.equal(graph.lazy().W, (torch.eye(5) + graph.W) / 2)
    assert torch.equal(Topology.ring(5).mixing(lazy=True).W, graph.lazy().W)
    assert graph.lazy().rule == "lazy metropolis"


# --- spectra -------------------------------------------------------------------------------------


def dense_gap(graph):
    W = graph.weights.toarray()
    eigenvalues = np.linalg.eigvalsh(W) if (W == W.T).all() else np.linalg.eigvals(W)
    return 1 - np.sort(np.abs(eigenvalues))[-2]


GRAPHS = {
    "ring": lambda: Topology.ring(40).mixing(),
    "even ring without own weight": lambda: Topology.ring(40).mixing("laplacian", kappa=2),
    "directed ring": lambda: Topology.directed_ring(41).mixing("sinkhorn"),
    "exponential": lambda: Topology.exponential(37).mixing("sinkhorn"),
    "complete": lambda: Topology.complete(41).mixing(),
    "star": lambda: Topology.star(50).mixing(),
    "grid": lambda: Topology.grid(6, 9).mixing("laplacian"),
    "directed": lambda: Topology.random_directed(60, 0.05, seed=2).mixing("sinkhorn", seed=1),
    "row stochastic only": lambda: Graph.from_matrix(random_row_stochastic(50)),
}


def random_row_stochastic(n):
    matrix = np.random.default_rng(0).random((n, n)) * (
        np.random.default_rng(1).random((n, n)) < 0.3
    ) + np.eye(n)
    return matrix / matrix.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("dense_limit", [600, 1], ids=["dense", "sparse"])
def test_spectral_gap_is_that_of_dense_eigenvalues(name, dense_limit, monkeypatch):
    monkeypatch.setattr(spectrum, "DENSE_LIMIT", dense_limit)
    monkeypatch.setattr(spectrum, "KRYLOV", 30)
    graph = GRAPHS[name]()
    assert graph.spectral_gap == pytest.approx(dense_gap(graph), abs=1e-8)


def test_each_large_graph_goes_the_way_meant_for_it():
    circulant = {"ring", "even ring without own weight", "directed ring", "exponential", "complete"}
    assert {
        name for name in GRAPHS if spectrum.circulant_row(GRAPHS[name]().weights) is not None
    } == circulant


@pytest.mark.parametrize(
    "graph",
    [
        Topology.random_regular(620, 4).mixing(),
        Topology.random_directed(610, 0.02).mixing("sinkhorn", seed=0),
    ],
    ids=lambda graph: graph.topology.name,
)
def test_spectral_gap_by_arpack_at_its_own_size(graph):
    assert graph.spectral_gap == pytest.approx(dense_gap(graph), rel=1e-6)
    assert Graph.from_matrix(graph.weights).spectral_gap == graph.spectral_gap


def test_a_gap_out_of_reach_is_said_so(monkeypatch):
    graph = Topology.from_edges([(i, i + 1) for i in range(4999)]).mixing()
    monkeypatch.setattr(spectrum, "RESTARTS", 2)
    with pytest.raises(Misuse, match="spectral gap of these 5000 clients was not found"):
        _ = graph.spectral_gap
    assert graph.describe().endswith("spectral gap not computed")


def test_gap_of_one_client_two_clients_and_no_mixing():
    assert Topology.ring(1).mixing().spectral_gap == 1
    assert Topology.ring(2).mixing().spectral_gap == pytest.approx(1)
    assert Graph.from_matrix(np.eye(3)).spectral_gap == 0


@pytest.mark.parametrize("dense_limit", [600, 1], ids=["dense", "sparse"])
@pytest.mark.parametrize(
    ("topology", "rule", "options"),
    [
        (Topology.ring(50), "metropolis", {}),
        (Topology.ring(50), "laplacian", {"kappa": 5}),
        (Topology.complete(42), "metropolis", {}),
        (Topology.grid(6, 9), "metropolis", {}),
        (Topology.grid(6, 9), "laplacian", {"kappa": 7.9}),
        (Topology.star(60), "metropolis", {}),
        (Topology.grid(6, 9), "metropolis", {"lazy": True}),
    ],
)
def test_positive_definite_is_what_dense_eigenvalues_say(
    topology, rule, options, dense_limit, monkeypatch
):
    monkeypatch.setattr(spectrum, "DENSE_LIMIT", dense_limit)
    graph = topology.mixing(rule, **options)
    assert graph.positive_definite == (np.linalg.eigvalsh(graph.weights.toarray()).min() > 1e-10)


def test_weights_that_are_not_symmetric_are_not_positive_definite():
    assert not Topology.directed_ring(5).mixing("sinkhorn", lazy=True).positive_definite


def test_a_hundred_thousand_clients_stay_sparse():
    tracemalloc.start()
    graph = Topology.ring(100_000).mixing("metropolis")
    assert graph.doubly_stochastic
    assert graph.symmetric
    assert graph.connected
    assert graph.primitive
    assert graph.lazy().positive_definite
    assert graph.spectral_gap == pytest.approx(4 / 3 * np.sin(np.pi / 100_000) ** 2, rel=1e-5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200e6  # dense, W would be 80 GB
    with pytest.raises(Misuse, match=r"too large to be dense.*graph\.weights"):
        _ = graph.W


# --- primitive and connected ---------------------------------------------------------------------


def powers_become_positive(graph):
    """Primitive by Wielandt's theorem: the power (n − 1)² + 1 of the pattern is positive."""
    pattern = graph.weights.toarray() > 0
    n, power = len(pattern), np.eye(len(pattern), dtype=bool)
    for _ in range((n - 1) ** 2 + 1):
        power = power.astype(int) @ pattern > 0
    return bool(power.all())


@settings(max_examples=150, deadline=None)
@given(n=st.integers(1, 8), density=st.floats(0.05, 0.6), own=st.booleans(), seed=SEEDS)
def test_primitive_and_connected_are_what_powers_of_the_pattern_say(n, density, own, seed):
    matrix = (np.random.default_rng(seed).random((n, n)) < density).astype(float)
    if not own:
        np.fill_diagonal(matrix, 0)
    graph = Graph.from_matrix(matrix)
    assert graph.primitive == powers_become_positive(graph)
    assert graph.connected == graph.topology.is_connected()


@pytest.mark.parametrize(
    ("matrix", "period"),
    [
        (Topology.ring(6).mixing("laplacian", kappa=2).W, 2),
        (np.roll(np.eye(5), 1, axis=0), 5),
        ([[0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]], 1),
    ],
)
def test_the_period_of_graphs_without_own_weight(matrix, period):
    graph = Graph.from_matrix(matrix)
    assert graph.connected
    assert graph.primitive == (period == 1)
    assert graph.lazy().primitive
    if period > 1:
        with pytest.raises(Misuse, match=f"length divisible by {period}.*lazy=True"):
            graph.require("primitive", by="DSGT")


# --- given matrices ------------------------------------------------------------------------------


def test_a_matrix_brings_its_edges_from_speaker_to_listener():
    matrix = [[0.5, 0.5, 0], [0, 0.5, 0.5], [0.5, 0, 0.5]]  # 0 listens to 1, so 1 sends to 0
    for form in (np.array, torch.tensor, sparse.csr_array, sparse.coo_matrix):
        graph = Graph.from_matrix(form(matrix))
        assert graph.edges.tolist() == [[0, 2], [1, 0], [2, 1]]
        assert graph.directed
        assert not graph.undirected
        assert graph.doubly_stochastic
        assert graph.W.tolist() == matrix
        assert graph.W.dtype == torch.float64
    assert not Graph.from_matrix(Topology.ring(4).mixing().W).directed


def test_a_matrix_on_a_topology_keeps_the_topology():
    graph = Graph.from_matrix(np.eye(4), Topology.ring(4))
    assert len(graph.edges) == 8
    assert not graph.connected  # no client gives weight to another
    assert graph.topology.is_connected()


@pytest.mark.parametrize(
    ("matrix", "topology", "message"),
    [
        (np.ones((2, 3)), None, r"shape \(2, 3\)"),
        (np.ones(3), None, r"shape \(3,\)"),
        (np.zeros((0, 0)), None, "shape"),
        ([[1, np.nan], [0, 1]], None, r"W\[0, 1\] is nan"),
        ([[1, 0], [0, np.inf]], None, r"W\[1, 1\] is inf"),
        (np.eye(2) * 1j, None, "not real numbers"),
        (np.eye(3), Topology.ring(4), "Give 4 × 4"),
        (
            np.full((3, 3), 1 / 3),
            Topology.directed_ring(3),
            r"W\[0, 1\] = 0.3333, but .* no edge 1 → 0",
        ),
        (np.full((2, 2), 1 / 2), Topology.from_edges([], clients=2), "no edge"),
    ],
)
def test_bad_matrices_are_refused(matrix, topology, message):
    with pytest.raises(Misuse, match=message):
        Graph.from_matrix(matrix, topology)


# --- errors ------------------------------------------------------------------------------------

THREE_TO_ONE = [[0.5, 0.5, 0], [0.5, 0.33, 0.17], [0, 0, 1]]


@pytest.mark.parametrize(
    ("graph", "what", "message"),
    [
        (
            Topology.directed_ring(4).mixing("sinkhorn"),
            "undirected",
            "edge 0 → 1 has no way back.*directed=False",
        ),
        (
            Topology.directed_ring(4).mixing("sinkhorn"),
            "symmetric",
            r"W\[0, 1\] = 0 but W\[1, 0\] = 0.5\..*metropolis",
        ),
        (Graph.from_matrix(THREE_TO_ONE), "doubly stochastic", "column 1 sums to 0.83.*sinkhorn"),
        (Graph.from_matrix(np.eye(2) * 0.9), "row stochastic", "row 0 sums to 0.9"),
        (Graph.from_matrix(np.eye(2) * 1.1), "column stochastic", "column 0 sums to 1.1"),
        (
            Graph.from_matrix([[1.5, -0.5], [-0.5, 1.5]]),
            "row stochastic",
            r"W\[0, 1\] = -0.5 is negative",
        ),
        (Graph.from_matrix(THREE_TO_ONE), "connected", "client 2 cannot be reached from client 0"),
        (
            Graph.from_matrix(np.transpose(THREE_TO_ONE)),
            "connected",
            "client 0 cannot be reached from client 2",
        ),
        (Graph.from_matrix(np.eye(2)), "primitive", "client 1 cannot be reached from client 0"),
        (
            Topology.ring(4).mixing(),
            "positive definite",
            "smallest eigenvalue is -0.333.*lazy=True",
        ),
        (Topology.directed_ring(3).mixing("sinkhorn"), "positive definite", "not symmetric"),
    ],
)
def test_require_names_the_algorithm_the_reason_and_the_remedy(graph, what, message):
    with pytest.raises(Misuse, match=f"LPPA needs a graph that is {what}; .*{message}"):
        graph.require(what, by="LPPA")


def test_require_is_silent_when_all_is_there():
    everything = [
        "undirected",
        "symmetric",
        "row stochastic",
        "column stochastic",
        "doubly stochastic",
    ]
    graph = PATH.mixing(lazy=True)
    assert (
        graph.require(*everything, "connected", "primitive", "positive definite", by="EXTRA")
        is None
    )
    with pytest.raises(Misuse, match=r"unknown property 'acyclic'.*undirected, symmetric"):
        graph.require("connected", "acyclic", by="EXTRA")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: PATH.mixing("metropols"),
            "Did you mean 'metropolis'.*metropolis, laplacian, sinkhorn",
        ),
        (lambda: PATH.mixing("uniform"), "'uniform' is unknown"),
        (lambda: PATH.mixing("metropolis", kappa=3), "no option 'kappa'. It takes no options"),
        (lambda: PATH.mixing("laplacian", seed=3), "no option 'seed'. It takes kappa"),
        (lambda: PATH.mixing("laplacian", kappa=1.5), "kappa = 1.5 is below the largest degree 2"),
        (lambda: PATH.mixing("laplacian", kappa=float("nan")), "kappa = nan"),
        (lambda: PATH.mixing("sinkhorn", seed=0.5), "seed is 0.5.*whole number"),
        (lambda: Topology.directed_ring(3).mixing("metropolis"), "directed.*sinkhorn"),
        (lambda: Topology.directed_ring(3).mixing("laplacian"), "directed.*sinkhorn"),
        (
            lambda: Topology.from_edges([(0, 1), (2, 3), (3, 5)]).mixing(),
            "it has 3 components, the smallest of size 1 with client 4.*Add edges",
        ),
        (
            lambda: Topology.from_edges([(0, 1)], directed=True).mixing("sinkhorn"),
            "2 strongly connected components",
        ),
    ],
)
def test_mixing_refuses_what_it_cannot_do(make, message):
    with pytest.raises(Misuse, match=message):
        make()


def test_describe_is_one_line():
    line = "ring(5), metropolis weights: 5 clients, 10 directed edges, spectral gap 0.461"
    assert Topology.ring(5).mixing().describe() == line
