"""The theorems of the LPPA paper as properties over graphs, seeds and noise."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings, strategies as st

import tacit
from tacit import (
    DPDSGT,
    DSGT,
    LPPA,
    Gaussian,
    Laplace,
    Setting,
    Simulation,
    Topology,
    quadratic,
)

ITERATIONS = 12
P = 4


@st.composite
def graphs(draw):
    """Doubly stochastic graphs of every family, directed and undirected."""
    n = draw(st.integers(3, 9))
    seed = draw(st.integers(0, 10_000))
    family = draw(
        st.sampled_from(["ring", "complete", "star", "directed ring", "random", "random directed"])
    )
    match family:
        case "ring":
            return Topology.ring(n).mixing("metropolis")
        case "complete":
            return Topology.complete(n).mixing("laplacian")
        case "star":
            return Topology.star(n).mixing("metropolis", lazy=True)
        case "directed ring":
            return Topology.directed_ring(n).mixing("sinkhorn", seed=seed)
        case "random":
            return Topology.erdos_renyi(n, 0.7, seed=seed).mixing("sinkhorn", seed=seed)
    return Topology.random_directed(n, 0.4, seed=seed).mixing("sinkhorn", seed=seed)


noise_laws = st.builds(
    lambda kind, exponent: kind(10.0**exponent),
    st.sampled_from([Laplace, Gaussian]),
    st.floats(-3, 3),
)
seeds = st.integers(0, 2**31)


def quadratics(clients: int, seed: int):
    """Strongly convex local losses with different optima, in double precision."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(clients, P, P))
    A = torch.tensor(root @ root.transpose(0, 2, 1) / P + np.eye(P))
    return quadratic(A, torch.tensor(rng.normal(size=(clients, P))))


def states(algorithm, graph, seed, iterations=ITERATIONS, task=None):
    """The states after 0, 1, … iterations."""
    task = task or quadratics(graph.clients, seed)
    simulation = Simulation(Setting(algorithm, task, graph, seed=seed, gradients="stacked"))
    simulation.start()
    yield simulation.state
    for _ in range(iterations):
        simulation.step()
        yield simulation.state


def tracking_error(state) -> float:
    """‖Σγ − Σ∇L‖∞ relative to the size of the terms, which masks make large."""
    size = float(state.gamma.abs().sum() + state.grad.abs().sum())
    return float((state.gamma.sum(0) - state.grad.sum(0)).abs().max()) / size


@given(graphs(), seeds, noise_laws, st.sampled_from(["derived", "sent"]), st.integers(1, 3))
@settings(max_examples=25)
def test_the_trackers_sum_to_the_gradients_in_every_iteration(graph, seed, law, masks, local_steps):
    for algorithm in (
        DSGT(lr=0.05, local_steps=local_steps),
        LPPA(lr=0.05, noise=law, masks=masks, local_steps=local_steps),
        LPPA(lr=0.05, noise=law, masks=masks, local_steps=local_steps, fresh=True),
    ):
        for state in states(algorithm, graph, seed):
            # Columns of Sinkhorn–Knopp sum to one within 1e-12.
            assert tracking_error(state) < 1e-11


@given(graphs(), seeds, noise_laws)
@settings(max_examples=40)
def test_own_noise_stays_in_the_sum(graph, seed, law):
    excess = [
        state.gamma.sum(0) - state.grad.sum(0)
        for state in states(DPDSGT(lr=0.01, noise=law), graph, seed)
    ]
    injected = excess[0]
    assert float(injected.abs().max()) > 1e-3 * law.scale
    for later in excess:
        torch.testing.assert_close(later, injected, rtol=1e-9, atol=1e-10 * (1 + law.scale))


@given(graphs(), seeds)
@settings(max_examples=25)
def test_noise_injected_in_every_iteration_accumulates(graph, seed):
    law = Laplace(1.0)
    simulation = Simulation(
        Setting(
            DPDSGT(lr=0.01, noise=law, inject="every"),
            quadratics(graph.clients, seed),
            graph,
            seed=seed,
        )
    )
    simulation.start()
    total = simulation.here.noise("zeta", law).sum(0)
    for t in range(ITERATIONS):
        simulation.step()
        total = total + simulation.here.at(t).noise("zeta", law).sum(0)
        excess = simulation.state.gamma.sum(0) - simulation.state.grad.sum(0)
        torch.testing.assert_close(excess, total, rtol=1e-9, atol=1e-9)


@dataclass(frozen=True)
class GivenGradients:
    """Gradients that depend only on the batch number, so that two algorithms see the same ones."""

    table: torch.Tensor  # [numbers, N, P]

    def theta0(self):
        return torch.zeros_like(self.table[0])

    def grad(self, theta, number, out=None):
        return self.table[number].clone()


def trackers(algorithm, graph, seed):
    """γ after 0, 1, … iterations under gradients that do not depend on θ, and the clients."""
    table = torch.tensor(
        np.random.default_rng(seed).normal(size=(ITERATIONS + 1, graph.clients, P))
    )
    simulation = Simulation(
        Setting(algorithm, quadratics(graph.clients, seed), graph, seed=seed, gradients="stacked")
    )
    simulation.here = replace(simulation.here, objective=GivenGradients(table))
    simulation.start()
    found = [simulation.state.gamma]
    for _ in range(ITERATIONS):
        simulation.step()
        found.append(simulation.state.gamma)
    return found, simulation.here


@given(graphs(), seeds, noise_laws)
def test_the_perturbation_is_the_mixed_noise(graph, seed, law):
    """With the same θ sequence Γᵗ − Γ̇ᵗ = Wᵗ(Δˢ − Δᴿ) for LPPA and WᵗZ for DP."""
    plain, here = trackers(DSGT(lr=0.1), graph, seed)
    masked, _ = trackers(LPPA(lr=0.1, noise=law), graph, seed)
    noisy, _ = trackers(DPDSGT(lr=0.1, noise=law), graph, seed)

    N = graph.clients
    sent, received = torch.zeros(N, P, dtype=torch.float64), torch.zeros(N, P, dtype=torch.float64)
    rows, _ = here.edge_noise("delta", law)
    for (source, target), delta in zip(graph.edges.tolist(), rows.tensor(), strict=True):
        sent[source] += delta
        received[target] += delta
    own = here.noise("zeta", law)

    power = torch.eye(N, dtype=torch.float64)
    for t in range(ITERATIONS + 1):
        tolerance = {"rtol": 1e-9, "atol": 1e-11 * max(1.0, law.scale)}
        torch.testing.assert_close(masked[t] - plain[t], power @ (sent - received), **tolerance)
        torch.testing.assert_close(noisy[t] - plain[t], power @ own, **tolerance)
        power = graph.W @ power


@pytest.mark.slow
@given(st.integers(0, 10_000), noise_laws, st.sampled_from(["ring", "directed"]))
# Runs are long, so shrinking would take hours.
@settings(max_examples=5, phases=[Phase.explicit, Phase.generate])
def test_lppa_reaches_the_optimum_and_dp_misses_it_by_its_noise(seed, law, kind):
    """The limit of LPPA is (ΣA)⁻¹Σb for every β, that of DP-DSGT is (ΣA)⁻¹(Σb − ΣZ)."""
    topology = Topology.ring(5) if kind == "ring" else Topology.random_directed(5, 0.8, seed=seed)
    graph = topology.mixing("sinkhorn")
    task = quadratics(5, seed)
    exact = tacit.run(task, LPPA(lr=0.04, noise=law), graph, steps=600, seed=seed)
    scale = max(1.0, law.scale)
    torch.testing.assert_close(exact.theta, task.optimum.expand(5, P), rtol=0, atol=1e-8 * scale)

    biased = tacit.run(task, DPDSGT(lr=0.04, noise=law), graph, steps=600, seed=seed)
    total = biased.state.gamma.sum(0) - biased.state.grad.sum(0)
    A = torch.stack([part[0] for part in task.parts]).sum(0)
    missed = task.optimum - torch.linalg.solve(A, total)
    torch.testing.assert_close(biased.theta, missed.expand(5, P), rtol=1e-6, atol=1e-8 * scale)
    assert float((biased.theta - task.optimum).norm()) > 1e-4 * law.scale


@given(graphs(), seeds)
def test_the_optimum_is_a_fixed_point(graph, seed):
    task = quadratics(graph.clients, seed)
    simulation = Simulation(Setting(LPPA(lr=0.05), task, graph, seed=seed))
    simulation.start()
    theta = task.optimum.repeat(graph.clients, 1)
    grad = simulation.here.grad(theta)
    simulation.state = replace(
        simulation.state, theta=theta, gamma=torch.zeros_like(grad), grad=grad
    )
    simulation.step()
    torch.testing.assert_close(simulation.state.theta, theta)
    torch.testing.assert_close(simulation.state.gamma, torch.zeros_like(grad), rtol=0, atol=1e-12)


@given(graphs(), seeds)
@settings(max_examples=25)
def test_without_noise_lppa_is_dsgt(graph, seed):
    plain = list(states(DSGT(lr=0.05), graph, seed))[-1]
    masked = list(states(LPPA(lr=0.05, noise=Laplace(0.0), fresh=True), graph, seed))[-1]
    assert torch.equal(plain.theta, masked.theta)


def test_the_three_cycle_of_figure_2():
    """On c1 → c2 → c3 → c1 the masks δ21 − δ13, δ32 − δ21 and δ13 − δ32 sum to zero."""
    graph = Topology.directed_ring(3).mixing("sinkhorn")
    simulation = Simulation(
        Setting(LPPA(lr=0.1, noise=Laplace(1.0)), quadratics(3, 0), graph, seed=3)
    )
    simulation.start()
    difference = simulation.state.gamma - simulation.state.grad
    edges = [tuple(edge) for edge in graph.edges.tolist()]
    rows = simulation.here.edge_noise("delta", Laplace(1.0))[0].tensor()
    delta = dict(zip(edges, rows, strict=True))
    d21, d32, d13 = delta[0, 1], delta[1, 2], delta[2, 0]
    torch.testing.assert_close(difference, torch.stack([d21 - d13, d32 - d21, d13 - d32]))
    assert float(difference.abs().min()) > 0
    torch.testing.assert_close(difference.sum(0), torch.zeros(P, dtype=torch.float64))


@pytest.mark.parametrize("law", [Laplace(0.7), Gaussian(0.7)])
def test_a_mask_has_the_variance_of_all_its_terms(law):
    """A client with d_in + d_out edges carries that many independent terms."""
    graph = Topology.star(6).mixing("metropolis", lazy=True)
    width = 40_000
    task = quadratic(torch.zeros(6, 1, 1), torch.zeros(6, 1))
    simulation = Simulation(Setting(LPPA(lr=0.1, noise=law), task, graph))
    randomness = replace(simulation.here.randomness, width=width)
    here = replace(simulation.here, randomness=randomness)
    sent, received = here.edge_noise("delta", law)
    mask = here.graph.net_out(sent, received)
    terms = here.graph.out_degree + here.graph.in_degree
    torch.testing.assert_close(
        mask.var(dim=1), terms * law.variance, rtol=0.05, atol=0, check_dtype=False
    )


def test_more_local_steps_make_consensus_worse():
    """Local steps do not mix; compared at the same number of exchanges (Fig. 6a)."""
    graph = Topology.ring(5).mixing("metropolis", lazy=True)
    task = quadratics(5, 1)
    apart = []
    for local_steps in (1, 5):
        run = tacit.run(task, DSGT(lr=0.02, local_steps=local_steps), graph, steps=20)
        apart.append(run.history[-1].consensus_distance)
    assert apart[1] > apart[0]
