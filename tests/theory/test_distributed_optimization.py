"""Facts of the distributed-optimization paper: limits and messages of PDMM and ADMM."""

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings, strategies as st
from torch.nn import functional

import tacit
from tacit.algorithms import ALGORITHMS
from tacit.algorithms.solvers import ExactSolver, GradientSolver, InnerSolver, QuadraticSolver
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation
from tacit.record.transcript import Transcript

WIDTH = 3
GRAPH = tacit.Topology.erdos_renyi(7, 0.4, seed=2).mixing("metropolis")


def strongly_convex(clients, seed=0):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(clients, WIDTH, WIDTH))
    A = torch.tensor(root @ root.transpose(0, 2, 1) / WIDTH + np.eye(WIDTH))
    return tacit.quadratic(A, torch.tensor(rng.normal(size=(clients, WIDTH))))


SOLVERS = [
    ExactSolver(),
    QuadraticSolver(mu=0.25),
    GradientSolver(mu=0.25),
    pytest.param(InnerSolver(mu=0.2, steps=3), marks=pytest.mark.slow),
]


@pytest.mark.parametrize("variance", [0, 100])
@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: type(solver).__name__)
@pytest.mark.parametrize("name", ["pdmm", "admm"])
def test_the_optimum_is_reached_whatever_the_variance_of_z0(name, solver, variance):
    task = strongly_convex(GRAPH.clients)
    algorithm = ALGORITHMS[name](rho=0.4, solver=solver, noise=tacit.Gaussian(variance**0.5))
    run = tacit.run(task, algorithm, GRAPH, steps=450, seed=1)
    assert float((run.theta - task.optimum).abs().max()) < 1e-8


CONNECTED = st.builds(
    lambda n, p, seed: tacit.Topology.erdos_renyi(n, p, seed=seed).mixing("metropolis"),
    n=st.integers(3, 8),
    p=st.floats(0.4, 1.0),
    seed=st.integers(0, 100),
)


@pytest.mark.slow
@settings(max_examples=6, phases=[Phase.explicit, Phase.generate])
@given(
    graph=CONNECTED,
    name=st.sampled_from(["pdmm", "admm"]),
    rho=st.floats(0.5, 1.5),
    seed=st.integers(0, 100),
)
def test_the_limit_does_not_depend_on_graph_rho_or_noise(graph, name, rho, seed):
    task = strongly_convex(graph.clients, seed)
    algorithm = ALGORITHMS[name](rho=rho, solver=ExactSolver(), noise=tacit.Gaussian(3.0))
    run = tacit.run(task, algorithm, graph, steps=300, seed=seed)
    torch.testing.assert_close(run.theta, task.optimum.expand_as(run.theta), rtol=0, atol=1e-8)


# --- The part of z outside the range of the constraints depends on z⁰ alone ---


def constraint_spaces(here, clients):
    """P, which swaps the ends of edges, and the projection orthogonal to the ranges of C and PC."""
    source, target = here.out_source, here.out_target
    count = len(source)
    edges = list(zip(source.tolist(), target.tolist(), strict=True))
    swap = torch.zeros(count, count, dtype=torch.float64)
    C = torch.zeros(count, clients, dtype=torch.float64)
    for k, (i, j) in enumerate(edges):
        C[k, i] = 1.0 if i < j else -1.0
        swap[k, edges.index((j, i))] = 1.0
    both = torch.cat((C, swap @ C), dim=1)
    outside = torch.eye(count, dtype=torch.float64) - both @ torch.linalg.pinv(both)
    return swap, outside


@settings(max_examples=10, phases=[Phase.explicit, Phase.generate])
@given(graph=CONNECTED, name=st.sampled_from(["pdmm", "admm"]), seed=st.integers(0, 100))
def test_the_part_of_z_that_does_not_converge_is_a_function_of_z0(graph, name, seed):
    """z⊥(t) = ½(z⊥ + Pz⊥) + ½(1 − 2θ)ᵗ(z⊥ − Pz⊥), for any data."""
    averaging = {"pdmm": 1.0, "admm": 0.5}[name]
    algorithm = ALGORITHMS[name](solver=ExactSolver(), noise=tacit.Laplace(2.0))
    simulation = Simulation(
        Setting(algorithm, strongly_convex(graph.clients, seed), graph, seed=seed)
    )
    simulation.start()
    swap, outside = constraint_spaces(simulation.here.graph, graph.clients)
    z0 = outside @ simulation.state.z
    for t in range(1, 12):
        simulation.step()
        expected = (z0 + swap @ z0) / 2 + (1 - 2 * averaging) ** t * (z0 - swap @ z0) / 2
        torch.testing.assert_close(outside @ simulation.state.z, expected, rtol=0, atol=1e-10)


def test_both_ends_of_an_edge_hold_the_same_z():
    """Bit for bit, although only differences are sent."""
    for masks in ("derived", "sent"):
        algorithm = ALGORITHMS["admm"](noise=tacit.Gaussian(5.0), masks=masks)
        simulation = Simulation(Setting(algorithm, strongly_convex(GRAPH.clients), GRAPH, seed=3))
        simulation.start()
        for _ in range(20):
            simulation.step()
            s = simulation.state
            assert torch.equal(simulation.net.send("check", s.z), s.z_there)


def test_z0_is_derived_or_sent_in_private_and_only_differences_follow():
    sent = {}
    for masks in ("derived", "sent"):
        transcript = Transcript()
        algorithm = ALGORITHMS["pdmm"](noise=tacit.Gaussian(1.0), masks=masks)
        simulation = Simulation(
            Setting(algorithm, strongly_convex(GRAPH.clients), GRAPH), transcript=transcript
        )
        simulation.start()
        simulation.step()
        sent[masks] = [(message.tag, message.private) for message in transcript.messages]
    assert sent == {"derived": [("dz", False)], "sent": [("z0", True), ("dz", False)]}


# --- Proposition 1: what the messages reveal ---


class Eavesdropper:
    """Knows the graph, ρ, and every Δz that was sent in clear."""

    def __init__(self, graph, rho, transcript):
        self.rho = rho
        edges = sorted(map(tuple, graph.edges.tolist()))
        self.neighbours = {
            i: [j for source, j in edges if source == i] for i in range(graph.clients)
        }
        # dz[t][i, j] is Δzⱼ|ᵢ of iteration t + 1.
        self.dz = [dict(zip(edges, message.rows, strict=True)) for message in transcript.of("dz")]

    def sign(self, i, j):
        return 1.0 if i < j else -1.0

    def change_of_model(self, i, t):
        """wᵢᵗ − wᵢᵗ⁻¹ from any neighbour (eq. 33).

        For PDMM, Δzⱼ|ᵢᵗ⁺¹ − Δzᵢ|ⱼᵗ = 2ρBᵢⱼ(wᵢᵗ − wᵢᵗ⁻¹).
        """
        j = self.neighbours[i][0]
        return (self.dz[t][i, j] - self.dz[t - 1][j, i]) / (2 * self.rho * self.sign(i, j))

    def received(self, i, t):
        """Σⱼ Bᵢⱼ Δzᵢ|ⱼ of iteration t, which is zᵢ|ⱼᵗ − zᵢ|ⱼᵗ⁻¹."""
        return sum(self.sign(i, j) * self.dz[t - 1][j, i] for j in self.neighbours[i])

    def change_of_gradient_exact(self, i, t):
        """∇fᵢ(wᵢᵗ) − ∇fᵢ(wᵢᵗ⁻¹) by eq. 28."""
        pull = self.rho * len(self.neighbours[i])
        return -self.received(i, t) - pull * self.change_of_model(i, t)

    def change_of_gradient_step(self, i, t, mu):
        """The same when one gradient step of size μ solves the local problem: eq. 36."""
        pull = self.rho * len(self.neighbours[i])
        return (
            -self.received(i, t + 1)
            - self.change_of_model(i, t + 1) / mu
            - (pull - 1 / mu) * self.change_of_model(i, t)
        )


def logistic(clients, seed=0):
    """The paper's toy (appendix E): one sample x ∈ ℝ² per client, weights and bias; θ = (w, b)."""
    rng = np.random.default_rng(seed)
    labels = torch.tensor(rng.integers(0, 2, clients), dtype=torch.float64)
    x = torch.tensor(rng.normal(size=(clients, 2))) + (2 * labels - 1)[:, None]

    def loss(theta, x, label):
        return functional.binary_cross_entropy_with_logits(x @ theta[:2] + theta[2], label)

    def proximal(linear, curvature, x, label):
        """Newton's method on a problem of three numbers."""
        features = torch.cat((x, x.new_ones(1)))
        theta = torch.zeros_like(linear)
        for _ in range(60):
            p = torch.sigmoid(features @ theta)
            gradient = (p - label) * features + linear + curvature * theta
            hessian = p * (1 - p) * torch.outer(features, features)
            theta = theta - torch.linalg.solve(
                hessian + curvature * torch.eye(3).to(theta), gradient
            )
        return theta

    task = tacit.Task(
        torch.zeros(3, dtype=torch.float64), list(zip(x, labels, strict=True)), loss=loss
    )
    return task.with_proximal(proximal), x


def eavesdrop(algorithm, task, graph, steps=6):
    """An eavesdropper of a run, and the states, which it does not see."""
    transcript = Transcript()
    simulation = Simulation(Setting(algorithm, task, graph, seed=5), transcript=transcript)
    simulation.start()
    states = [simulation.state]
    for _ in range(steps):
        simulation.step()
        states.append(simulation.state)
    return Eavesdropper(graph, algorithm.rho, transcript), states


GEOMETRIC = tacit.Topology.random_geometric(12, 0.5, seed=4).mixing("metropolis")


@pytest.mark.parametrize(
    "solver", [ExactSolver(), GradientSolver(mu=0.1)], ids=["eq. 28 and 29", "eq. 36"]
)
def test_one_gradient_difference_gives_the_sample_of_logistic_regression(solver):
    """An eavesdropper that sees only messages computes every client's x."""
    task, x = logistic(GEOMETRIC.clients)
    algorithm = ALGORITHMS["pdmm"](rho=0.4, solver=solver, noise=tacit.Gaussian(1.0))
    spy, _ = eavesdrop(algorithm, task, GEOMETRIC)
    for client in range(GEOMETRIC.clients):
        if isinstance(solver, ExactSolver):
            difference = spy.change_of_gradient_exact(client, 2)
        else:
            difference = spy.change_of_gradient_step(client, 2, solver.mu)
        recovered = difference[:2] / difference[2]
        torch.testing.assert_close(recovered, x[client], rtol=0, atol=1e-6)


END = 350


def test_noisy_gradients_differences_and_the_sum_over_honest_clients_are_known():
    """Proposition 1, claims i to iii, for a corrupt client 0 that also sees every clear message.

    It knows the models too: all equal its own in the end, and messages reveal their changes.
    """
    task = strongly_convex(GRAPH.clients, seed=8)
    algorithm = ALGORITHMS["pdmm"](rho=0.4, solver=ExactSolver(), noise=tacit.Gaussian(10.0))
    spy, states = eavesdrop(algorithm, task, GRAPH, steps=END)
    edges = sorted(map(tuple, GRAPH.edges.tolist()))
    # z0[i, j] = zᵢ|ⱼ⁰; the adversary knows those of client 0's edges.
    z0 = dict(zip(edges, states[0].z, strict=True))
    hessians, linear = (torch.stack(arrays) for arrays in zip(*task.parts, strict=True))
    honest = [i for i in range(GRAPH.clients) if i != 0]
    t = 5

    def known_model(i, t):
        """The final model of client 0, minus all changes of client i since iteration t."""
        return states[END].theta[0] - sum(spy.change_of_model(i, s) for s in range(t + 1, END))

    model = torch.stack([known_model(i, t) for i in range(GRAPH.clients)])
    # The step of iteration t solves for w with z of iteration t.
    torch.testing.assert_close(model, states[t + 1].theta, rtol=0, atol=1e-9)
    gradient = torch.einsum("nij,nj->ni", hessians, model) - linear

    def known_noisy_gradient(i):
        """The left side of eq. 31: everything in it is known."""
        known = torch.zeros(WIDTH, dtype=torch.float64)
        for j in spy.neighbours[i]:
            known += spy.sign(i, j) * sum(spy.dz[s][j, i] for s in range(t))
            if j == 0:
                known += spy.sign(i, j) * z0[i, j]
        return -(known + algorithm.rho * len(spy.neighbours[i]) * model[i])

    for i in honest:
        hidden = sum(spy.sign(i, j) * z0[i, j] for j in spy.neighbours[i] if j != 0)
        torch.testing.assert_close(known_noisy_gradient(i), gradient[i] + hidden, rtol=0, atol=1e-9)
        assert float((known_noisy_gradient(i) - gradient[i]).norm()) > 1
        before = torch.einsum("ij,j->i", hessians[i], states[t].theta[i]) - linear[i]
        torch.testing.assert_close(
            spy.change_of_gradient_exact(i, t), gradient[i] - before, rtol=0, atol=1e-9
        )
    # The first message and the model give zⱼ|ₖ⁰ − zₖ|ⱼ⁰ of each honest edge (eq. 32 and 34).
    first = torch.stack([known_model(i, 0) for i in range(GRAPH.clients)])
    gap = sum(
        spy.sign(j, k) * (2 * algorithm.rho * spy.sign(j, k) * first[j] - spy.dz[0][j, k]) * -1
        for j, k in edges
        if j < k and j != 0
    )
    known_sum = sum(known_noisy_gradient(i) for i in honest) - gap
    torch.testing.assert_close(known_sum, gradient[honest].sum(0), rtol=0, atol=1e-8)


def test_fedavg_sends_every_gradient_to_the_server():
    task = strongly_convex(GRAPH.clients)
    transcript = Transcript()
    simulation = Simulation(
        Setting(ALGORITHMS["fedavg"](lr=0.1), task, GRAPH), transcript=transcript
    )
    simulation.start()
    before = simulation.state.theta
    simulation.step()
    hessians, linear = (torch.stack(arrays) for arrays in zip(*task.parts, strict=True))
    gradients = torch.einsum("nij,nj->ni", hessians, before) - linear
    message, answer = transcript.of("grad")
    assert (message.verb, answer.verb) == ("average", "broadcast")
    assert (message.verb, message.private) == ("average", False)
    torch.testing.assert_close(message.rows, gradients)
    torch.testing.assert_close(simulation.state.theta, before - 0.1 * gradients.mean(0))
    # Up and down, once for the initial models and once for the gradients, in float64.
    assert simulation.net.bytes_sent == 2 * 2 * GRAPH.clients * WIDTH * 8
