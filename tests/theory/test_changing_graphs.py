"""Graphs that change, absent clients and late messages against trajectories and limits by NumPy."""

import itertools

import numpy as np
import pytest
import torch

import tacit
from tacit import Absence, Matchings, Misuse, Participation, Phases, Topology
from tacit.algorithms.algorithm import tensors_of
from tacit.graph import World

N, P, LR = 6, 3, 0.05
RNG = np.random.default_rng(5)
ROOT = RNG.normal(size=(N, P, P))
A = ROOT @ ROOT.transpose(0, 2, 1) / P + np.eye(P)
B = RNG.normal(size=(N, P))
START = 5 + RNG.normal(size=(N, P))
TASK = tacit.quadratic(torch.tensor(A), torch.tensor(B), theta0=torch.tensor(START))
COMPLETE = Topology.complete(N)
RING = Topology.ring(N).mixing("metropolis")


def gradients(x):
    return np.einsum("nij,nj->ni", A, x) - B


def metropolis(edges):
    """The Metropolis weights of directed edges, both directions given, entry by entry."""
    degree = [sum(1 for source, _ in edges if source == client) for client in range(N)]
    W = np.zeros((N, N))
    for source, target in edges:
        W[target, source] = 1 / (1 + max(degree[source], degree[target]))
    return W + np.diag(1 - W.sum(1))


def shares(edges):
    """Column-stochastic weights: each client divides what it has among itself and its targets."""
    degree = [sum(1 for source, _ in edges if source == client) for client in range(N)]
    W = np.diag([1 / (1 + one) for one in degree])
    for source, target in edges:
        W[target, source] = 1 / (1 + degree[source])
    return W


def on_present(edges, present):
    return [(s, t) for s, t in edges if present[s] and present[t]]


def close(run, expected):
    return np.abs(run.theta.numpy() - expected).max() < 1e-12


SCHEDULES = {
    "matchings": Matchings(COMPLETE),
    "phases": Phases([(RING, 3), (Topology.star(N).mixing("metropolis"), 2)]),
    "function": lambda t: Topology.erdos_renyi(N, 0.5, seed=t).mixing("metropolis"),
}


@pytest.mark.parametrize("order", ["adapt-then-combine", "combine-then-adapt"])
@pytest.mark.parametrize("kind", SCHEDULES)
def test_decentralized_sgd_on_changing_graphs_is_the_trajectory_by_numpy(kind, order):
    algorithm = tacit.DPSGD(lr=LR, order=order)
    run = tacit.run(TASK, algorithm, SCHEDULES[kind], steps=60, seed=3)
    x = START
    for t in range(60):
        W = metropolis(run.setting.schedule.at(t, 3).edges.tolist())
        step = LR * gradients(x)
        x = W @ (x - step) if order == "adapt-then-combine" else W @ x - step
    assert close(run, x)


DIRECTED = Phases(
    [
        (Topology.directed_ring(N).mixing("out-degree"), 2),
        (Topology.random_directed(N, 0.3, seed=1).mixing("out-degree"), 3),
    ]
)


@pytest.mark.parametrize("participation", [None, Participation(share=0.6)])
def test_push_sum_on_changing_directed_graphs_is_the_trajectory_by_numpy(participation):
    run = tacit.run(
        TASK, tacit.PushSum(lr=LR), DIRECTED, steps=60, seed=3, participation=participation
    )
    x, w, z = START, np.ones((N, 1)), START
    for t in range(60):
        present = np.ones(N, dtype=bool)
        if participation is not None:
            present = participation.present(t, 3, N)
        W = shares(on_present(DIRECTED.at(t, 3).edges.tolist(), present))
        moved = np.where(present[:, None], x - LR * gradients(z), x)
        x, w = W @ moved, W @ w
        z = np.where(present[:, None], x / w, z)
    assert close(run, z)
    # Mass is kept, also that of absent clients.
    assert abs(float(run.state.weight.sum()) - N) < 1e-12


def test_push_sum_reaches_the_optimum_of_directed_changing_graphs_with_shrinking_steps():
    algorithm = tacit.PushSum(lr=tacit.Inverse(0.2, steps=20))
    run = tacit.run(TASK, algorithm, DIRECTED, steps=1200)
    assert float((run.theta - TASK.optimum).abs().max()) < 0.05
    # Dividing by the weights matters: they are far from one.
    assert float((run.state.weight - 1).abs().max()) > 0.2


ABSENCES = Participation(absences=(Absence(2, 5, 20), Absence(4, 10, 30), Absence(0, 50)))


@pytest.mark.parametrize(
    "algorithm",
    [tacit.DSGT(lr=LR, momentum=0.5), tacit.LPPA(lr=LR, fresh=True, noise=tacit.Laplace(1.0))],
    ids=["dsgt", "lppa"],
)
@pytest.mark.parametrize("graph", [RING, SCHEDULES["matchings"]], ids=["fixed", "matchings"])
def test_absent_clients_keep_their_rows_and_trackers_sum_to_the_gradients(algorithm, graph):
    states = []
    tacit.run(
        TASK,
        algorithm,
        graph,
        steps=60,
        participation=ABSENCES,
        progress=lambda simulation: states.append(tensors_of(simulation.state)),
    )
    for t, (before, after) in enumerate(itertools.pairwise(states), start=1):
        error = (after["gamma"].sum(0) - after["grad"].sum(0)).abs().max()
        assert float(error) < 1e-11
        present = torch.tensor(ABSENCES.present(t, 0, N))
        for name in after:
            assert torch.equal(after[name][~present], before[name][~present])
            assert not torch.equal(after[name][present], before[name][present])


def test_tracking_with_few_clients_at_a_time_reaches_the_optimum():
    share = Participation(share=0.5)
    run = tacit.run(TASK, tacit.DSGT(lr=LR), RING, steps=400, participation=share)
    assert float((run.theta - TASK.optimum).abs().max()) < 1e-4


def test_late_messages_keep_the_limit_of_diffusion():
    """The map x ↦ W(x − λ(Ax − b)) has one fixed point, the limit with any bounded delays.

    Where all rows stand still, late rows equal current ones: the fixed point is that without delay.
    Row i of the error is at most Σⱼ wᵢⱼ ‖I − λAⱼ‖ times the largest of the last rows' errors, and
    all these factors are below one: the iteration contracts in the maximum over clients and over
    the last `delay` iterations.
    """
    delayed = Participation(delay=5)
    run = tacit.run(TASK, tacit.DSG(lr=LR), RING, steps=500, seed=2, participation=delayed)
    W = RING.W.numpy()
    step = np.zeros((N * P, N * P))
    for j in range(N):
        block = np.eye(P) - LR * A[j]
        assert np.linalg.norm(block, 2) < 1
        for i in range(N):
            step[i * P : (i + 1) * P, j * P : (j + 1) * P] = W[i, j] * block
    limit = np.linalg.solve(np.eye(N * P) - step, (LR * W @ B).ravel()).reshape(N, P)
    assert np.abs(run.theta.numpy() - limit).max() < 1e-5
    # It is not the optimum, and on the way delays matter.
    assert float((run.theta - TASK.optimum).abs().max()) > 1e-3
    early = tacit.run(TASK, tacit.DSG(lr=LR), RING, steps=20, seed=2, participation=delayed)
    plain = tacit.run(TASK, tacit.DSG(lr=LR), RING, steps=20, seed=2)
    assert float((early.theta - plain.theta).abs().max()) > 0.01


def test_late_messages_are_the_trajectory_by_numpy():
    late = Participation(delay=3, stragglers=(1, 4))
    run = tacit.run(TASK, tacit.DSG(lr=LR), RING, steps=40, seed=9, participation=late)
    W, x, sent = RING.W.numpy(), START, []
    for t in range(40):
        sent.append(x - LR * gradients(x))
        delays = dict(
            zip(map(tuple, RING.edges.tolist()), late.delays(t, 9, RING.edges), strict=True)
        )
        assert all(delay == 0 for (source, _), delay in delays.items() if source not in (1, 4))
        x = np.stack(
            [
                sum(W[i, j] * sent[t - delays.get((j, i), 0)][j] for j in range(N) if W[i, j])
                for i in range(N)
            ]
        )
    assert close(run, x)
    assert late.delays(30, 9, RING.edges).max() > 0


def test_gossip_with_constant_delays_keeps_a_weighted_average():
    """x(t+1)ᵢ = Σⱼ wᵢⱼ x(t−dᵢⱼ)ⱼ keeps Σⱼ (xⱼ(t) + Σᵢ wᵢⱼ Σ_{s=1..dᵢⱼ} xⱼ(t−s)) for doubly
    stochastic W, so the limit weighs client j by 1 + Σᵢ wᵢⱼ dᵢⱼ.
    """

    class Constant(Participation):
        def delays(self, t, seed, edges):
            return np.minimum(edges[:, 0] % 3, t)

    nothing = tacit.quadratic(
        torch.zeros(N, P, P).double(), torch.zeros(N, P).double(), theta0=torch.tensor(START)
    )
    run = tacit.run(nothing, tacit.DSG(lr=LR), RING, steps=400, participation=Constant(delay=2))
    weight = np.ones(N)
    for source, target in RING.edges.tolist():
        weight[source] += RING.weights[target, source] * (source % 3)
    # Rows from before the start are the first ones.
    limit = weight @ START / weight.sum()
    assert np.abs(run.theta.numpy() - limit).max() < 1e-12
    assert np.abs(limit - START.mean(0)).max() > 1e-3


ONE_WAY = Topology.random_directed(N, 0.3, seed=2).mixing("out-degree")


def push_sum_by_mailboxes(steps, late, seed, gradient):
    """Push-sum with a mailbox: what is sent lies there until its delay is over.

    Yields models, and the totals of numerators and weights at clients and in the mailbox.
    """
    x, w, mailbox = START.copy(), np.ones((N, 1)), []
    shares, edges = ONE_WAY.weights.toarray(), ONE_WAY.edges
    theta = x
    for t in range(steps):
        # The delay of a message is the age at which it arrives.
        ages = {}
        for age in range(late.delay + 1):
            arriving = late.arriving(t + age, seed, edges)[age]
            ages |= {tuple(edge): age for edge in edges[arriving].tolist()}
        assert len(ages) == len(edges)
        moved = x - LR * gradient(theta)
        for (source, target), age in ages.items():
            share = shares[target, source]
            mailbox.append((t + age, target, share * moved[source], share * w[source]))
        own = np.diag(shares)[:, None]
        x, w = own * moved, own * w
        for _, target, numerator, weight in (one for one in mailbox if one[0] == t):
            x[target] += numerator
            w[target] += weight
        mailbox = [one for one in mailbox if one[0] > t]
        theta = x / w
        totals = (
            x.sum(0) + sum(one[2] for one in mailbox),
            w.sum() + sum(one[3].sum() for one in mailbox),
        )
        yield theta, totals, len(mailbox)


@pytest.mark.parametrize(
    "late", [Participation(delay=4), Participation(delay=3, stragglers=(1, 4))]
)
def test_late_push_sum_is_the_trajectory_by_mailboxes(late):
    run = tacit.run(TASK, tacit.PushSum(lr=LR), ONE_WAY, steps=40, seed=9, participation=late)
    *_, (theta, _, _) = push_sum_by_mailboxes(40, late, 9, gradients)
    assert close(run, theta)


def test_late_push_sum_keeps_all_mass_and_ends_at_the_average():
    late, nothing = Participation(delay=4), np.zeros_like
    on_the_way = 0
    for _, (numerator, weight), count in push_sum_by_mailboxes(60, late, 0, nothing):
        assert np.abs(numerator - START.sum(0)).max() < 1e-12
        assert abs(weight - N) < 1e-12
        on_the_way = max(on_the_way, count)
    assert on_the_way > N
    still = tacit.quadratic(
        torch.zeros(N, P, P).double(), torch.zeros(N, P).double(), theta0=torch.tensor(START)
    )
    run = tacit.run(still, tacit.PushSum(lr=LR), ONE_WAY, steps=400, participation=late)
    assert np.abs(run.theta.numpy() - START.mean(0)).max() < 1e-12
    # On the way, delays matter.
    plain = tacit.run(still, tacit.PushSum(lr=LR), ONE_WAY, steps=10)
    early = tacit.run(still, tacit.PushSum(lr=LR), ONE_WAY, steps=10, participation=late)
    assert float((plain.theta - early.theta).abs().max()) > 1e-3


def test_each_message_arrives_once():
    late, edges = Participation(delay=3), RING.edges
    arrived = np.zeros((30, len(edges)), dtype=int)
    for t in range(33):
        for age, which in enumerate(late.arriving(t, 5, edges)):
            if t - age < 30:
                arrived[t - age] += which
    assert (arrived == 1).all()


def test_a_schedule_of_one_graph_gives_the_same_bits():
    for algorithm in (tacit.DPSGD(lr=LR), tacit.DSGT(lr=LR), tacit.LPPA(lr=LR, fresh=True)):
        fixed = tacit.run(TASK, algorithm, RING, steps=20)
        changing = tacit.run(TASK, algorithm, [RING], steps=20)
        assert torch.equal(fixed.theta, changing.theta)
        assert fixed.history[-1].bytes_sent == changing.history[-1].bytes_sent


def test_bytes_are_those_of_the_edges_in_use():
    run = tacit.run(TASK, tacit.DSG(lr=LR), Matchings(COMPLETE), steps=10)
    assert run.history[-1].bytes_sent == 10 * N * P * 8
    world = World(RING, None, ABSENCES)
    edges = sum(len(world.at(t).graph.edges) for t in range(60))
    run = tacit.run(TASK, tacit.DSG(lr=LR), RING, steps=60, participation=ABSENCES)
    assert run.history[-1].bytes_sent == edges * P * 8
    run = tacit.run(TASK, tacit.DSG(lr=LR), RING, steps=10, participation=Participation(delay=2))
    assert run.history[-1].bytes_sent == 10 * len(RING.edges) * P * 8


def test_a_union_that_is_not_connected_is_refused():
    halves = Topology.from_edges([(0, 1), (1, 2), (3, 4), (4, 5)], N)
    apart = tacit.Graph(halves, tacit.Graph.from_matrix(metropolis(halves.edges)).weights, "given")
    with pytest.raises(Misuse, match="connected"):
        tacit.run(TASK, tacit.DSG(lr=LR), [apart, apart], steps=2)
    joined = Topology.from_edges([(2, 3)], N)
    bridge = tacit.Graph(joined, tacit.Graph.from_matrix(metropolis(joined.edges)).weights, "given")
    run = tacit.run(TASK, tacit.DSG(lr=LR), [apart, bridge], steps=4)
    assert run.history[-1].step == 4


def test_a_graph_of_some_iteration_with_other_weights_is_refused():
    skew = tacit.Graph.from_matrix(np.roll(np.eye(N), 1, axis=1) / 2 + np.eye(N) / 2)
    with pytest.raises(Misuse, match="symmetric"):
        tacit.run(TASK, tacit.DSG(lr=LR), [RING, skew], steps=4)
    # Two graphs whose average is doubly stochastic, but which are not: known before the run.
    first = tacit.Graph.from_matrix(np.tril(np.ones((N, N))) / np.arange(1, N + 1)[:, None])
    second = tacit.Graph.from_matrix(2 / N - first.W.numpy())
    with pytest.raises(Misuse, match="in iteration 3 needs"):
        tacit.run(TASK, tacit.DSGT(lr=LR), [(RING, 3), (first, 1), (second, 1)], steps=1)
    late = tacit.GraphFunction(lambda t: skew if t == 7 else RING, window=5)
    with pytest.raises(Misuse, match="iteration 7"):
        tacit.run(TASK, tacit.DSG(lr=LR), late, steps=10)
