"""One suite over every registered algorithm: a new one gets its tests by being registered.

The worked example of docs/guides/own-algorithm.md takes part too, so that it stays true.
"""

import math
import re
import sys
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

import tacit
from support.suited import COPIES, made, suited
from tacit import (
    ALGORITHMS,
    Graph,
    Laplace,
    Misuse,
    Privacy,
    Setting,
    Simulation,
    Topology,
    quadratic,
)
from tacit.algorithms.algorithm import state_type, tensors_of
from tacit.core.rows import received
from tacit.record import checkpoint as checkpoints
from tacit.record.checkpoint import Checkpoint

N, P = 6, 3
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "own-algorithm.md"

# The limit of each algorithm with default options and lr = 0.05 on a strongly convex problem with
# full gradients, and how far from it a client may be. Default: the optimum, which the slowest are
# 1e-7 away from after these iterations.
# Algorithms that keep a guarantee have one without noise and clipping.
LIMITS = {
    "dsg": ("fixed point of diffusion", 1e-9),
    "d-psgd": ("fixed point of diffusion", 1e-9),
    # All weights stay one here.
    "push-sum": ("fixed point of diffusion", 1e-9),
    # M's noise, 0.01 of a step, and shifts that differ a little.
    "dsg-rms": ("fixed point of diffusion", 0.05),
    # Five deviations of noise 0.01, contracted by 1 − λ at worst.
    "pd-lms": ("fixed point of diffusion", 0.08),
    "mdsg": ("fixed point of diffusion", 0.08),
    # M's noise times the clients' own gradients there, which are not zero.
    "edsg-rms": ("optimum", 0.01),
    # Three steps of a sign, scaled by 1/(2p − 1) and P/k.
    "defl-vp": ("optimum", 0.5),
    "decor": ("fixed point of diffusion", 1e-9),
    "dp-dsgt": ("optimum of the sum plus noise", 1e-9),
    # Half an integer of each client, over the number of samples.
    "private-sgd": ("optimum", 1e-7),
    "psgt": ("optimum of the sum plus noise", 1e-6),
    "gossip": ("average of the initial models", 1e-12),
}


# Optimizers of clients. What they converge to is in tests/theory.
OPTIMIZED = {
    "dsg, nesterov": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    "dsg, adam": {"optimizer": "adam", "weight_decay": 0.1},
    "d-psgd, adamw": {"optimizer": "adamw", "weight_decay": 0.1, "order": "combine-then-adapt"},
    "edsg, momentum": {"momentum": 0.9},
    "lppa, nesterov": {"momentum": 0.9, "nesterov": True, "fresh": True, "local_steps": 2},
    "fedavg, adam": {"optimizer": "adam"},
    "decor, momentum": {"momentum": 0.9, "weight_decay": 0.1},
    "private-sgd, adamw": {"optimizer": "adamw", "weight_decay": 0.1},
}


def worked_example():
    """The source of the algorithm in docs/guides/own-algorithm.md."""
    text = GUIDE.read_text(encoding="utf-8")
    (code,) = re.findall(r'```python title="gossip\.py"\n(.*?)```', text, flags=re.S)
    return code


@pytest.fixture(scope="module")
def gossip():
    namespace = type(sys)("worked_example_gossip")
    sys.modules[namespace.__name__] = namespace
    exec(compile(worked_example(), "gossip.py", "exec"), namespace.__dict__)
    yield namespace.GossipAveraging
    del sys.modules[namespace.__name__]


@pytest.fixture(params=[*ALGORITHMS, "gossip", *OPTIMIZED])
def plain(request, gossip):
    """An algorithm before it is prepared for a guarantee."""
    if request.param == "gossip":
        return made(gossip)
    return made(ALGORITHMS[request.param.split(",")[0]], **OPTIMIZED.get(request.param, {}))


@pytest.fixture
def graph():
    # Meets every requirement of every algorithm.
    return Topology.ring(N).mixing("metropolis", lazy=True)


@pytest.fixture
def algorithm(plain, problem, graph):
    return suited(plain, problem, graph)[0]


@pytest.fixture
def task(plain, problem, graph):
    return suited(plain, problem, graph)[1]


@pytest.fixture
def problem():
    """A task with full gradients, before it is made to suit an algorithm."""
    rng = np.random.default_rng(5)
    root = rng.normal(size=(N, P, P))
    A = torch.tensor(root @ root.transpose(0, 2, 1) / P + 2 * np.eye(P))
    # Far from the optimum, so that averaging alone does not get near it.
    start = torch.tensor(3 + rng.normal(size=(N, P)))
    return quadratic(A, torch.tensor(rng.normal(size=(N, P))), theta0=start)


def advanced(algorithm, task, graph, steps, seed=1):
    simulation = Simulation(Setting(algorithm, task, graph, seed=seed, gradients="stacked"))
    simulation.start()
    for _ in range(steps):
        simulation.step()
    return simulation


def equal(first, second):
    one, other = tensors_of(first), tensors_of(second)
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_is_described(algorithm):
    assert is_dataclass(algorithm)
    assert algorithm.__dataclass_params__.frozen
    for text in (algorithm.name, algorithm.paper, algorithm.protects):
        assert text.strip()
    assert algorithm.requires or "server" in algorithm.protects
    assert next(field.name for field in fields(state_type(type(algorithm)))) == "theta"


def test_nothing_is_kept_outside_the_state(algorithm, task, graph):
    """Two runs of one algorithm object, interleaved, have the bits that each has alone."""
    alone = [advanced(algorithm, task, graph, 4, seed).state for seed in (1, 2)]
    both = [advanced(algorithm, task, graph, 0, seed) for seed in (1, 2)]
    for _ in range(4):
        for simulation in both:
            simulation.step()
    assert equal(both[0].state, alone[0])
    assert equal(both[1].state, alone[1])


def test_a_step_does_not_write_into_the_state_it_was_given(algorithm, task, graph):
    simulation = advanced(algorithm, task, graph, 2)
    before = simulation.state
    copy = {name: rows.clone() for name, rows in tensors_of(before).items()}
    simulation.step()
    assert all(torch.equal(copy[name], rows) for name, rows in tensors_of(before).items())


def test_resuming_from_a_checkpoint_changes_nothing(algorithm, task, graph, tmp_path):
    whole = advanced(algorithm, task, graph, 7)
    half = advanced(algorithm, task, graph, 3)
    checkpoints.save(tmp_path, Checkpoint(half.state, 3, half.net.bytes_sent, 0.0, "mark"))
    saved = checkpoints.load_latest(tmp_path, algorithm, "mark")
    again = Simulation(Setting(algorithm, task, graph, seed=1, gradients="stacked"))
    again.restore(saved)
    for _ in range(4):
        again.step()
    assert equal(again.state, whole.state)
    assert again.net.bytes_sent == whole.net.bytes_sent


class DisconnectedNetwork:
    """A network on which clients, and the server, receive zeros from all other clients."""

    def __init__(self, graph: Graph) -> None:
        self.own = graph.W.diagonal()[:, None]
        self.edges = len(graph.edges)

    def mix(self, **rows):
        return tuple(self.own * received(x) for x in rows.values())

    def send(self, tag, edge_rows, *, private=False):
        return torch.zeros_like(edge_rows)

    def total(self, **rows):
        return tuple(sent.decode(sent.integers) for sent in rows.values())

    def average(self, **rows):
        return tuple(x / len(x) for x in rows.values())


def test_clients_learn_of_each_other_through_the_network_only(plain, problem, graph):
    """On a disconnected network a client's rows do not depend on the others' data."""
    parts = list(problem.parts)
    parts[0] = tuple(1 - 3 * array for array in parts[0])
    results = []
    for data in (problem, replace(problem, parts=parts)):
        algorithm, one = suited(plain, data, graph)
        simulation = Simulation(Setting(algorithm, one, graph, seed=1, gradients="stacked"))
        simulation.here = replace(simulation.here, net=DisconnectedNetwork(graph))
        simulation.start()
        for _ in range(3):
            simulation.step()
        results.append(tensors_of(simulation.state))
    for name, rows in results[0].items():
        owner = torch.arange(N) if len(rows) == N else simulation.here.graph.out_row
        others = owner != 0
        assert torch.equal(rows[others], results[1][name][others])
    # The first client's own rows do, unless it never looks at its data.
    assert torch.equal(results[0]["theta"][0], results[1]["theta"][0]) == (plain.name == "gossip")


def diffusion_fixed_point(task, graph, rate):
    """The w with w = A(w − γ∇J(w)), solved as one linear system over all clients."""
    hessians, linear = (torch.stack(arrays) for arrays in zip(*task.parts, strict=True))
    A = torch.kron(graph.W, torch.eye(P, dtype=torch.float64))
    one = torch.eye(N * P, dtype=torch.float64)
    descend = one - rate * torch.block_diag(*hessians)
    return torch.linalg.solve(one - A @ descend, rate * A @ linear.reshape(-1)).reshape(N, P)


def shifted_optimum(task, state):
    """Where Σ∇J(w) plus all noise in the trackers is zero; that noise is Σγ − Σ∇J."""
    noise = state.gamma.sum(0) - state.grad.sum(0)
    hessians, linear = (torch.stack(arrays) for arrays in zip(*task.parts, strict=True))
    return torch.linalg.solve(hessians.sum(0), linear.sum(0) - noise)


@pytest.mark.parametrize("plain", [*ALGORITHMS, "gossip"], indirect=True)
@pytest.mark.filterwarnings("ignore::tacit.core.errors.Caution")
def test_reaches_its_limit_on_a_strongly_convex_problem(plain, problem, graph):
    # Only sums of integers can do without a bound.
    nothing = Privacy(epsilon=math.inf, clip=math.inf if plain.needs_total else 1e6)
    algorithm, task = suited(plain, problem, graph, promise=nothing, batch_size=COPIES)
    run = tacit.run(task, algorithm, graph, steps=300, seed=3)
    limit, radius = LIMITS.get(algorithm.name, ("optimum", 1e-6))
    centre = {
        "optimum": lambda: task.optimum.expand(N, P),
        "optimum of the sum plus noise": lambda: shifted_optimum(problem, run.state).expand(N, P),
        "fixed point of diffusion": lambda: diffusion_fixed_point(problem, graph, 0.05),
        "average of the initial models": lambda: task.initial(3, range(N)).mean(0).expand(N, P),
    }[limit]()
    distance = float((run.theta - centre).abs().max())
    assert distance < radius
    if radius > 1e-3:  # a neighbourhood, not a point
        assert distance > 1e-6
    if "noise" in limit:
        assert float((centre - task.optimum).norm()) > 1e-3


UNSUITABLE = {
    "doubly stochastic": lambda: Graph.from_matrix([[0.9, 0.1, 0], [0.2, 0.5, 0.3], [0, 0.3, 0.7]]),
    "column stochastic": lambda: Graph.from_matrix([[0.9, 0.1, 0], [0.2, 0.5, 0.3], [0, 0.3, 0.7]]),
    "row stochastic": lambda: Graph.from_matrix([[0.9, 0.3, 0], [0, 0.5, 0.5], [0.3, 0.3, 0.4]]),
    "connected": lambda: Graph.from_matrix(torch.eye(3)),
    "primitive": lambda: Graph.from_matrix(
        torch.eye(4).roll(1, 0) / 2 + torch.eye(4).roll(-1, 0) / 2
    ),
    "undirected": lambda: Topology.directed_ring(3).mixing("sinkhorn"),
    "symmetric": lambda: Topology.directed_ring(3).mixing("sinkhorn"),
    "positive definite": lambda: Graph.from_matrix([[0.0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]]),
}


def test_unsuitable_graphs_are_refused_with_reason_and_remedy(algorithm):
    for requirement in algorithm.requires:
        graph = UNSUITABLE[requirement]()
        task = quadratic(torch.eye(P).repeat(graph.clients, 1, 1), torch.zeros(graph.clients, P))
        with pytest.raises(Misuse, match=requirement) as refusal:
            tacit.run(task, algorithm, graph, steps=1)
        assert algorithm.name in str(refusal.value)
        assert refusal.value.remedy


def test_the_worked_example_is_short_and_registered_by_one_line():
    code = worked_example()
    assert len(code.splitlines()) < 60
    text = GUIDE.read_text(encoding="utf-8")
    assert '"gossip": "tacit.algorithms.gossip:GossipAveraging",\n' in text


def test_laplace_noise_is_the_default_of_the_papers():
    assert ALGORITHMS["lppa"](lr=0.1).noise == Laplace(0.025)
