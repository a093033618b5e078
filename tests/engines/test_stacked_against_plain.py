"""The stacked engine against the equations, written out client by client with plain Python loops."""

import functools

import pytest
import scipy.sparse as sp
import torch
from hosting import rows_of, run_apart, run_together

import tacit
from tacit.core import native
from tacit.core.randomness import Philox
from tacit.engines import product
from tacit.simulation import Setting, Simulation

SEED = 6
STEPS = 6
WIDTH = 3
SIZES = (6, 9, 7, 12, 8, 6, 10)
CLIENTS = len(SIZES)
BATCH = 3

GRAPHS = {
    "ring": tacit.Topology.ring(CLIENTS).mixing("metropolis"),
    "directed ring": tacit.Topology.directed_ring(CLIENTS).mixing("sinkhorn", seed=1),
    "random directed": tacit.Topology.random_directed(CLIENTS, 0.4, seed=2).mixing(
        "sinkhorn", seed=3
    ),
}


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


XS = [draw(size, WIDTH, seed=k) for k, size in enumerate(SIZES)]
YS = [draw(size, seed=k + 50) for k, size in enumerate(SIZES)]
START = draw(CLIENTS, WIDTH, seed=99)


def squares(batch_size):
    return tacit.least_squares(XS, YS, theta0=START, batch_size=batch_size)


# --- the reference: equations of ALGORITHMS.md, section 1 -------------------------------------------------


class Plain:
    """All clients as Python lists of vectors; every sum is a loop."""

    def __init__(self, graph, batch_size):
        self.W = graph.weights.toarray()
        self.edges = [tuple(edge) for edge in graph.edges.tolist()]
        self.batch_size = batch_size
        self.noise = Philox(SEED, WIDTH, torch.float64)
        task = squares(batch_size)
        self.feeds = [task.loader(torch.tensor([i]), SEED, "cpu") for i in range(CLIENTS)]

    def gradient(self, i, theta, number):
        """∇Lᵢ of ½ mean((xθ − y)²), by hand."""
        if self.batch_size is None:
            x, y = XS[i], YS[i]
        else:
            rows = self.feeds[i].indices(number)[0] - sum(
                SIZES[:i]
            )  # of the joined arrays; ours are apart
            x, y = XS[i][rows], YS[i][rows]
        return x.T @ (x @ theta - y) / len(x)

    def mixed(self, rows):
        """Σⱼ wᵢⱼ xⱼ."""
        out = []
        for i in range(CLIENTS):
            total = torch.zeros(WIDTH, dtype=torch.float64)
            for j in range(CLIENTS):
                if self.W[i, j]:
                    assert i == j or (j, i) in self.edges
                    total = total + self.W[i, j] * rows[j]
            out.append(total)
        return out

    def own_noise(self, i, law, tick):
        return self.noise.rows("zeta", law, tick, torch.tensor([i]), None).tensor()[0]

    def edge_noise(self, source, target, law, tick):
        return self.noise.rows(
            "delta", law, tick, torch.tensor([source]), torch.tensor([target])
        ).tensor()[0]

    def noise_difference(self, i, law, tick):
        """Σ_out δ_li − Σ_in δ_ij."""
        total = torch.zeros(WIDTH, dtype=torch.float64)
        for source, target in self.edges:
            if source == i:
                total = total + self.edge_noise(source, target, law, tick)
            if target == i:
                total = total - self.edge_noise(source, target, law, tick)
        return total


@functools.cache
def reference(algorithm, graph, batch_size):
    """States (θ, γ) after 0, 1, …, STEPS iterations."""
    plain = Plain(graph, batch_size)
    L = algorithm.local_steps

    def disturbance(i, tick):
        if isinstance(algorithm, tacit.DPDSGT):
            return plain.own_noise(i, algorithm.noise, tick)
        if isinstance(algorithm, tacit.LPPA):
            return plain.noise_difference(i, algorithm.noise, tick)
        return torch.zeros(WIDTH, dtype=torch.float64)

    again = getattr(algorithm, "inject", "") == "every" or getattr(algorithm, "fresh", False)
    theta = [START[i] for i in range(CLIENTS)]
    grad = [plain.gradient(i, theta[i], 0) for i in range(CLIENTS)]
    gamma = [grad[i] + disturbance(i, 0) for i in range(CLIENTS)]
    states = [(torch.stack(theta), torch.stack(gamma))]
    for t in range(STEPS):
        lam = algorithm.lr(t) if callable(algorithm.lr) else algorithm.lr
        mixed_theta, mixed_gamma = plain.mixed(theta), plain.mixed(gamma)
        for i in range(CLIENTS):
            theta[i] = mixed_theta[i] - lam * gamma[i]
            new = plain.gradient(i, theta[i], 1 + t * L)
            gamma[i] = mixed_gamma[i] + new - grad[i]
            grad[i] = new
            for local in range(1, L):
                theta[i] = theta[i] - lam * gamma[i]
                new = plain.gradient(i, theta[i], 1 + t * L + local)
                gamma[i] = gamma[i] + new - grad[i]
                grad[i] = new
            if again:
                gamma[i] = gamma[i] + disturbance(i, t + 1)
        states.append((torch.stack(theta), torch.stack(gamma)))
    return states


ALGORITHMS = {
    "dsgt": tacit.DSGT(lr=0.05),
    "dsgt, decaying": tacit.DSGT(lr=tacit.Exponential(0.1, 0.8, every=2)),
    "dp-dsgt, start": tacit.DPDSGT(lr=0.05, noise=tacit.Laplace(0.3)),
    "dp-dsgt, every": tacit.DPDSGT(lr=0.05, noise=tacit.Gaussian(0.3), inject="every"),
    "lppa, start": tacit.LPPA(lr=0.05, noise=tacit.Laplace(0.7)),
    "lppa, fresh": tacit.LPPA(lr=0.05, noise=tacit.Laplace(0.7), fresh=True),
    "lppa, fresh, sent": tacit.LPPA(lr=0.05, noise=tacit.Laplace(0.7), fresh=True, masks="sent"),
    "lppa, two local steps": tacit.LPPA(lr=0.03, noise=tacit.Gaussian(0.5), local_steps=2),
    "lppa, fresh, three local steps": tacit.LPPA(lr=0.02, fresh=True, local_steps=3),
}


def close(got, expected):
    scale = float(expected.abs().max())
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12 * scale)


@pytest.fixture(params=GRAPHS)
def graph(request):
    return GRAPHS[request.param]


@pytest.fixture(params=ALGORITHMS)
def algorithm(request):
    return ALGORITHMS[request.param]


@pytest.mark.parametrize(("batch_size", "way"), [(BATCH, "batched"), (None, "looped")])
def test_stacked_rows_follow_the_equations(algorithm, graph, batch_size, way):
    simulation = Simulation(
        Setting(algorithm, squares(batch_size), graph, seed=SEED, gradients=way)
    )
    simulation.start()
    for t, (theta, gamma) in enumerate(reference(algorithm, graph, batch_size)):
        if t > 0:
            simulation.step()
        close(simulation.state.theta, theta)
        close(simulation.state.gamma, gamma)


@pytest.mark.parametrize("compiled", [True, False])
def test_sparse_products_follow_the_equations_too(algorithm, graph, compiled, monkeypatch):
    """The same row by row, as larger and sparser graphs take it, by compiled loops and by neighbour slots."""
    simulation = Simulation(
        Setting(algorithm, squares(BATCH), graph, seed=SEED, gradients="looped")
    )
    with monkeypatch.context() as patch:
        patch.setattr(product, "DENSE", -1)
        patch.setattr(native, "supports", lambda rows: compiled)
        simulation.net._weights = product.Product(sp.csr_array(graph.weights), torch.float64, "cpu")
    simulation.start()
    for _ in range(STEPS):
        simulation.step()
    theta, gamma = reference(algorithm, graph, BATCH)[-1]
    close(simulation.state.theta, theta)
    close(simulation.state.gamma, gamma)


# --- hosting some of the rows ------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [[CLIENTS - 1], [1, 2, 5]], ids=str)
def test_hosting_some_clients_gives_their_rows(algorithm, graph, ids):
    task = squares(BATCH)
    together, overheard = run_together(algorithm, task, graph, STEPS, SEED)
    apart = run_apart(algorithm, task, graph, STEPS, SEED, ids, overheard)
    for state, everyone in zip(apart, together, strict=True):
        for name, expected in rows_of(ids, everyone, graph).items():
            close(getattr(state, name), expected)
