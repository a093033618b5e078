"""What adversaries know where the graph changes, against dense computations of all messages."""

import numpy as np
import pytest
import torch

import tacit
from tacit import Absence, Adversary, Matchings, Misuse, Participation, Phases, Topology
from tacit.auditing.symbolic.linear_knowledge import LinearKnowledge
from tacit.auditing.symbolic.replay import replay
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.graph import World
from tacit.record.unknowns import Unknown

N, STEPS, LR, SEED = 5, 6, 0.25, 4
RING = Topology.ring(N).mixing("metropolis")
DIRECTED = Phases(
    [
        (Topology.directed_ring(N).mixing("out-degree"), 2),
        (Topology.random_directed(N, 0.3, seed=1).mixing("out-degree"), 1),
    ]
)
AWAY = Participation(absences=(Absence(1, 1, 2), Absence(3, 4)))
MATCHINGS = Matchings(Topology.complete(N))
WORLDS = {
    "matchings": World(MATCHINGS.union, MATCHINGS, None, SEED),
    "phases": World(
        *(lambda one: (one.union, one))(Phases([(RING, 1), (Topology.star(N).mixing(), 2)])),
        None,
        SEED,
    ),
    "absent": World(RING, None, AWAY, SEED),
    "share": World(MATCHINGS.union, MATCHINGS, Participation(share=0.7), SEED),
    "late": World(RING, None, Participation(delay=2), SEED),
    "directed": World(DIRECTED.union, DIRECTED, Participation(share=0.8), SEED),
}


class Columns:
    """Coefficients over first models and gradients, in a fixed order."""

    def __init__(self, gradients):
        self.names = [("theta0", 0, client) for client in range(N)]
        self.names += [("gradient", when, client) for when in gradients for client in range(N)]
        self.place = {name: k for k, name in enumerate(self.names)}

    def unit(self, kind, when):
        rows = np.zeros((N, len(self.names)))
        for client in range(N):
            rows[client, self.place[kind, when, client]] = 1
        return rows


def messages_by_hand(name, world):
    """Columns, and all messages as (sender, receivers, coefficients), by dense products."""
    columns = Columns(range(0 if name == "dsgt" else 1, STEPS + 1))
    theta = columns.unit("theta0", 0)
    gamma = grad = columns.unit("gradient", 0) if name == "dsgt" else None
    weight, x = np.ones((N, 1)), theta
    sent, rows = [], []
    for t in range(STEPS):
        moment = world.at(t)
        W, edges = moment.graph.weights.toarray(), moment.graph.edges.tolist()
        present = np.ones(N, dtype=bool) if moment.present is None else moment.present
        here = present[:, None]
        if name == "dsgt":
            out = [theta, gamma]
            new = W @ theta - LR * gamma
            fresh = columns.unit("gradient", t + 1)
            gamma = np.where(here, W @ gamma + fresh - grad, gamma)
            theta, grad = np.where(here, new, theta), np.where(here, fresh, grad)
        elif name == "push-sum":
            moved = x - LR * columns.unit("gradient", t + 1)
            out = [moved]
            sent.append((moved, weight))
            mixed, mass = W @ moved, W @ weight
            if moment.delays is not None:
                own = np.diag(np.diag(W))
                mixed, mass = own @ moved, own @ weight
                for age, which in enumerate(moment.arriving):
                    for source, target in np.array(edges)[which].tolist():
                        mixed[target] += W[target, source] * sent[t - age][0][source]
                        mass[target] += W[target, source] * sent[t - age][1][source]
            x = np.where(here, mixed, x)
            weight = np.where(here, mass, weight)
            theta = np.where(here, x / weight, theta)
        else:
            out = [theta - LR * columns.unit("gradient", t + 1)]
            sent.append(out[0])
            mixed = W @ out[0]
            if moment.delays is not None:
                mixed = np.diag(np.diag(W)) @ out[0]
                for (source, target), delay in zip(edges, moment.delays, strict=True):
                    mixed[target] += W[target, source] * sent[t - delay][source]
            theta = np.where(here, mixed, theta)
        for message in out:
            for sender in range(N):
                receivers = [target for source, target in edges if source == sender]
                if receivers:
                    rows.append((sender, receivers, message[sender]))
    return columns, rows


def span(rows):
    """Orthonormal rows that span given ones."""
    _, sizes, right = np.linalg.svd(rows, full_matrices=False)
    return right[sizes > 1e-9 * max(sizes.max(initial=0), 1e-300)]


ALGORITHMS = {
    "dsg": tacit.DSG(lr=LR),
    "dsgt": tacit.DSGT(lr=LR),
    "push-sum": tacit.PushSum(lr=LR),
}
CASES = [
    *(("dsg", kind) for kind in WORLDS if kind != "directed"),
    *(("dsgt", kind) for kind in ("matchings", "phases", "absent", "share")),
    *(("push-sum", kind) for kind in ("directed", "matchings", "late")),
]


@pytest.mark.parametrize("corrupt", [(1,), (0, 2)])
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_knowledge_is_the_span_of_the_messages_by_brute_force(name, kind, corrupt):
    algorithm, world = ALGORITHMS[name], WORLDS[kind]
    run = run_on_symbols(algorithm, world, STEPS)
    assert replay(algorithm, world, run) == []
    knowledge = LinearKnowledge(run, Adversary.curious(*corrupt))

    columns, messages = messages_by_hand(name, world)
    hidden = [k for k, (_, _, client) in enumerate(columns.names) if client not in corrupt]
    seen = [
        row[hidden]
        for sender, receivers, row in messages
        if sender in corrupt or not set(receivers).isdisjoint(corrupt)
    ]
    by_hand = span(np.array(seen))
    order = [knowledge.hidden.index(Unknown(*columns.names[k])) for k in hidden]
    assert sorted(order) == list(range(len(knowledge.hidden)))
    audited = span(knowledge.basis[:, order])
    assert len(by_hand) == len(audited)
    assert np.abs(by_hand.T @ by_hand - audited.T @ audited).max() < 1e-8

    # The same single gradients are known.
    for k, place in enumerate(hidden):
        unit = np.zeros(len(hidden))
        unit[k] = 1
        known = np.linalg.norm(by_hand @ unit) > 1 - 1e-9
        vector = knowledge.vector((Unknown(*columns.names[place]), 1.0))
        assert bool(knowledge.exact(vector[None])[0]) == known


def test_a_fixed_graph_tells_a_neighbour_more_than_matchings():
    def known(world):
        run = run_on_symbols(tacit.DSGT(lr=LR), world, STEPS)
        knowledge = LinearKnowledge(run, Adversary.curious(1))
        vectors = [knowledge.vector((one, 1.0)) for one in run.gradients(0)]
        return int(knowledge.exact(np.stack(vectors)).sum())

    assert known(RING) > known(WORLDS["matchings"])


def test_gradients_of_absent_clients_are_no_secrets():
    run = run_on_symbols(tacit.DSG(lr=LR), WORLDS["absent"], STEPS)
    # Client 1 misses iterations 1 and 2, client 3 those from 4 on.
    assert [one.when for one in run.gradients(1)] == [1, 4, 5, 6]
    assert [one.when for one in run.gradients(3)] == [1, 2, 3, 4]
    assert [one.when for one in run.gradients(0)] == [1, 2, 3, 4, 5, 6]


@pytest.fixture
def task():
    generator = torch.Generator().manual_seed(0)
    return tacit.quadratic(
        torch.eye(3).repeat(N, 1, 1).double(),
        torch.randn(N, 3, generator=generator).double(),
    )


@pytest.mark.parametrize("kind", ["matchings", "share", "late"])
def test_the_derived_numbers_are_the_gradients(task, kind):
    """Proofs are combinations of messages: applied to a recorded run, they give its gradients."""
    world = WORLDS[kind]
    setting = tacit.Setting(
        ALGORITHMS["dsg"], task, world.graph, SEED, schedule=world.schedule,
        participation=world.participation,
    )  # fmt: skip
    transcript = tacit.run(
        task,
        ALGORITHMS["dsg"],
        world.schedule or world.graph,
        steps=STEPS,
        seed=SEED,
        participation=world.participation,
        transcript=tacit.Keep(insides=tuple(range(N)), theta0=True),
    ).transcript
    run = run_on_symbols(setting.algorithm, setting.world, STEPS)
    knowledge = LinearKnowledge(run, Adversary.eavesdropper())
    exact = 0
    for gradient in run.gradients(0):
        answer = knowledge.estimate(knowledge.vector((gradient, 1.0)))
        if answer.status != "exact":
            continue
        exact += 1
        found = sum(
            a * transcript.messages[seen.message].rows[seen.row]
            for seen, a in answer.combination.messages
        )
        assert torch.allclose(found, transcript.held_row(gradient), atol=1e-9)
    assert exact


def test_audits_of_runs_say_what_changes_and_what_was_not_measured(task):
    run = tacit.run(
        task, ALGORITHMS["dsg"], MATCHINGS, steps=20, seed=SEED, transcript=tacit.Keep(insides=(1,))
    )
    audit = tacit.audit(run, "curious(1)", victim=0)
    assert any("random matchings of complete(5)" in remark for remark in audit.remarks)
    assert any("canaries" in note for note in audit.notes)
    assert audit.exposure is not None


def test_audits_of_malicious_clients_are_refused(task):
    run = tacit.run(task, ALGORITHMS["dsg"], MATCHINGS, steps=4)
    with pytest.raises(Misuse, match="fixed graph"):
        tacit.audit(run, "malicious(1):echo", victim=0, attacks=False)
