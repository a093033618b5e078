"""What momentum, weight decay and Adam keep of the theorems, over graphs and seeds."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import tacit
from support.graphs import connected_graphs
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation

P, ITERATIONS = 3, 10
seeds = st.integers(0, 2**31)
options = st.fixed_dictionaries(
    {
        "momentum": st.sampled_from([0.5, 0.9]),
        "nesterov": st.booleans(),
        "weight_decay": st.sampled_from([0.0, 0.3]),
    }
)


def quadratics(clients, seed):
    """∇fᵢ(θ) = Aᵢθ − bᵢ with different optima."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(clients, P, P))
    A = torch.tensor(root @ root.transpose(0, 2, 1) / P + np.eye(P))
    start = torch.tensor(2 + rng.normal(size=(clients, P)))
    return tacit.quadratic(A, torch.tensor(rng.normal(size=(clients, P))), theta0=start)


def data_of(task):
    return tuple(torch.stack(arrays) for arrays in zip(*task.parts, strict=True))


def gradients(task, theta, decay):
    """∇fᵢ(θᵢ) + ωθᵢ of all clients, by hand."""
    A, b = data_of(task)
    return torch.einsum("nij,nj->ni", A, theta) - b + decay * theta


def regularized_optimum(task, decay):
    """The minimum of Σᵢ fᵢ(θ) + n(ω/2)‖θ‖²."""
    A, b = data_of(task)
    return torch.linalg.solve(A.sum(0) + len(A) * decay * torch.eye(P, dtype=A.dtype), b.sum(0))


def states(algorithm, task, graph, seed=0):
    simulation = Simulation(Setting(algorithm, task, graph, seed=seed, gradients="stacked"))
    simulation.start()
    yield simulation.state
    for _ in range(ITERATIONS):
        simulation.step()
        yield simulation.state


@given(connected_graphs(), seeds, options, st.integers(1, 3))
@settings(max_examples=15)
def test_trackers_sum_to_the_gradients_of_the_regularized_objective(
    graph, seed, given_options, local_steps
):
    task, decay = quadratics(graph.clients, seed), given_options["weight_decay"]
    given_options = {"lr": 0.01, "local_steps": local_steps, **given_options}
    for algorithm in (
        tacit.DSGT(**given_options),
        tacit.LPPA(noise=tacit.Laplace(3.0), **given_options),
        tacit.LPPA(noise=tacit.Laplace(3.0), fresh=True, **given_options),
    ):
        for state in states(algorithm, task, graph, seed):
            expected = gradients(task, state.theta, decay).sum(0)
            size = float(state.gamma.abs().sum() + expected.abs().sum())
            assert float((state.gamma.sum(0) - expected).abs().max()) < 1e-11 * size


@given(connected_graphs(), seeds, options, st.sampled_from(["dsgt", "lppa", "dsg", "edsg"]))
@settings(max_examples=40)
def test_the_mean_model_takes_the_momentum_steps_of_one_machine(graph, seed, given_options, name):
    """m̄⁺ = β m̄ + ḡ with the mean gradient: masks of LPPA cancel in it, and so do differences."""
    task, rate = quadratics(graph.clients, seed), 0.01
    extra = {"noise": tacit.Laplace(3.0), "fresh": True} if name == "lppa" else {}
    lazy = tacit.Graph.from_matrix((graph.W + torch.eye(graph.clients).double()) / 2)
    algorithm = tacit.ALGORITHMS[name](lr=rate, **given_options, **extra)
    beta, decay = given_options["momentum"], given_options["weight_decay"]
    momentum = torch.zeros(P, dtype=torch.float64)
    run = list(states(algorithm, task, lazy, seed))
    for before, after in pairwise(run):
        mean = gradients(task, before.theta, decay).mean(0)
        momentum = beta * momentum + mean
        direction = mean + beta * momentum if given_options["nesterov"] else momentum
        expected = before.theta.mean(0) - rate * direction
        torch.testing.assert_close(after.theta.mean(0), expected, rtol=1e-10, atol=1e-10)


RING = tacit.Topology.ring(5).mixing("metropolis", lazy=True)
HEAVY = {"momentum": 0.8, "weight_decay": 0.5}
LIMITS = {
    "dsgt": tacit.DSGT(lr=0.02, **HEAVY),
    "dsgt, nesterov": tacit.DSGT(lr=0.02, nesterov=True, **HEAVY),
    "lppa": tacit.LPPA(lr=0.02, noise=tacit.Laplace(2.0), **HEAVY),
    "edsg": tacit.EDSG(lr=0.02, **HEAVY),
    "fedavg": tacit.FedAvg(lr=0.02, **HEAVY),
    "fedavg, nesterov": tacit.FedAvg(lr=0.05, nesterov=True, **HEAVY),
    "pdmm": tacit.PDMM(solver=tacit.ExactSolver(), weight_decay=0.5),
    "pdmm, quadratic": tacit.PDMM(solver=tacit.QuadraticSolver(mu=0.2), weight_decay=0.5),
    "admm": tacit.ADMM(solver=tacit.GradientSolver(mu=0.1), weight_decay=0.5),
    "dsgt-rms": tacit.DSGTRMS(lr=0.05, protection=tacit.NormVector(0.0), weight_decay=0.5),
}


@pytest.mark.parametrize("algorithm", LIMITS.values(), ids=LIMITS)
def test_the_limit_is_the_optimum_of_the_regularized_objective(algorithm):
    task = quadratics(5, 7)
    optimum = regularized_optimum(task, 0.5)
    assert float((optimum - task.optimum).norm()) > 0.01
    run = tacit.run(task, algorithm, RING, steps=600, seed=1)
    torch.testing.assert_close(run.theta, optimum.expand(5, P), rtol=0, atol=1e-6)


def test_local_adam_misses_the_optimum_however_small_its_steps():
    """Clients divide by their own scales: f₁ counts no more than f₂, which is ten times flatter."""
    graph = tacit.Topology.complete(2).mixing("metropolis")
    A = torch.tensor([10.0, 1.0], dtype=torch.float64)[:, None, None]
    task = tacit.quadratic(A, A[:, :, 0] * torch.tensor([[1.0], [-1.0]]).double())
    for rate in (0.1, 0.02):
        missed = {}
        for optimizer in ("sgd", "adam"):
            algorithm = tacit.DSG(lr=rate, optimizer=optimizer)
            run = tacit.run(task, algorithm, graph, steps=int(10 / rate))
            missed[optimizer] = float((run.theta - task.optimum).abs().max())
        assert missed["sgd"] < 1e-9
        assert missed["adam"] > 0.3
