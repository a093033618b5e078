import threading
from queue import Queue
from types import SimpleNamespace

import pytest
import torch

import tacit
from tacit.config.loading import make_config
from tacit.peer.federation.manifest import make_manifest
from tacit.peer.federation.roster import Member
from tacit.peer.node.going_back import NO_CEILING, RejoinLimits
from tacit.peer.node.roster_context import diameter, rejoin

STEPS = 100


class QueueNetworks:
    """The networks of all nodes in one process: messages go through queues."""

    def __init__(self, manifest):
        self.queues = {}
        for member in manifest.members:
            for other in manifest.out_neighbours(member.name):
                self.queues[member.name, other.name] = Queue()

    def of(self, manifest, name):
        def exchange(messages, like, decode=lambda found: found):
            for receiver, tensors in messages.items():
                self.queues[name, receiver].put(tensors)
            senders = manifest.in_neighbours(name)
            found = [self.queues[other.name, name].get(timeout=10) for other in senders]
            shapes = {tag: rows.shape for tag, rows in like.items()}
            for tensors in found:
                assert {tag: rows.shape for tag, rows in tensors.items()} == shapes
            return [decode(tensors) for tensors in found]

        return SimpleNamespace(manifest=manifest, name=name, exchange=exchange)


def roster(graph, generation=2):
    members = [
        Member(f"n{i}", f"127.0.0.1:{7000 + i}", i, bytes([i]) * 32, 1)
        for i in range(graph.clients)
    ]
    return make_manifest("clinics-00000000", generation, "0" * 64, members, graph, make_config({}))


def rejoined(manifest, steps, thetas, **options):
    """Iteration and model of each node after rejoining."""
    networks, results = QueueNetworks(manifest), {}

    def take_part(i, name):
        like = torch.zeros(3)
        network = networks.of(manifest, name)
        given = {key: value[i] if key == "limits" else value for key, value in options.items()}
        results[i] = rejoin(network, steps[i], STEPS, thetas[i], like, **given)

    threads = [
        threading.Thread(target=take_part, args=(i, member.name))
        for i, member in enumerate(manifest.members)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return [results[i] for i in range(len(threads))]


def ring(n):
    return tacit.Topology.ring(n).mixing("metropolis")


@pytest.mark.parametrize(("graph", "hops"), [
    (ring(5), 2),
    (ring(6), 3),
    (tacit.Topology.complete(4).mixing("metropolis"), 1),
    (tacit.Topology.star(5).mixing("metropolis"), 2),
    (tacit.Topology.directed_ring(5).mixing("sinkhorn"), 4),
])  # fmt: skip
def test_the_diameter(graph, hops):
    assert diameter(graph) == hops


@pytest.mark.parametrize("graph", [ring(5), tacit.Topology.directed_ring(4).mixing("sinkhorn")])
def test_all_agree_on_the_earliest_iteration_and_keep_their_models(graph):
    n = graph.clients
    thetas = [torch.full((3,), float(i)) for i in range(n)]
    outcome = rejoined(roster(graph), [40 + i for i in range(n)], thetas)
    assert [step for step, _ in outcome] == [40] * n
    assert all(torch.equal(theta, thetas[i]) for i, (_, theta) in enumerate(outcome))


def test_a_new_node_gets_the_mean_of_its_neighbours_and_delays_no_node():
    thetas = [torch.full((3,), float(i)) for i in range(4)] + [None]
    outcome = rejoined(roster(ring(5)), [40, 41, 42, 41, 0], thetas)
    assert [step for step, _ in outcome] == [40] * 5
    assert torch.equal(outcome[4][1], torch.full((3,), 1.5))  # of clients 0 and 3


def test_a_new_node_between_new_nodes_is_reached_too():
    thetas = [torch.full((3,), 2.0), None, None, None, torch.full((3,), 2.0)]
    outcome = rejoined(roster(ring(5)), [7, 0, 0, 0, 8], thetas)
    assert [step for step, _ in outcome] == [7] * 5
    assert all(torch.equal(theta, torch.full((3,), 2.0)) for _, theta in outcome)


def test_a_node_that_never_started_gets_a_model_like_a_new_one():
    thetas = [torch.full((3,), 1.0), torch.full((3,), 3.0), None]
    outcome = rejoined(roster(ring(3)), [9, 8, 0], thetas)
    assert [step for step, _ in outcome] == [8] * 3
    assert torch.equal(outcome[2][1], torch.full((3,), 2.0))


@pytest.mark.parametrize("common", [False, True])
def test_without_any_model_all_nodes_start_from_the_beginning(common):
    outcome = rejoined(roster(ring(3)), [0, 0, 0], [None] * 3, common=common)
    assert outcome == [(0, None)] * 3


def test_with_one_model_all_nodes_continue_from_the_latest():
    """New nodes, nodes that crashed with an old checkpoint, and those that are behind."""
    old, latest = torch.full((3,), 0.3), torch.full((3,), 0.7)
    thetas = [old, None, latest, latest, old, None]
    outcome = rejoined(roster(ring(6)), [41, 0, 42, 42, 12, 0], thetas, common=True)
    assert [step for step, _ in outcome] == [42] * 6
    assert all(torch.equal(theta, latest) for _, theta in outcome)


# --- going back -----------------------------------------------------------------------------------


def running(step, kept=(30, 38), clients=5):
    return RejoinLimits.of(step, clients, kept, runs=True)


def test_a_member_that_claims_to_be_at_the_beginning_does_not_send_all_back():
    steps = [50, 51, 0, 51, 50]
    thetas = [torch.full((3,), float(i)) for i in range(5)]
    limits = [running(step) for step in steps[:2]] + [RejoinLimits()]
    limits += [running(step) for step in steps[3:]]
    outcome = rejoined(roster(ring(5)), steps, thetas, limits=limits)
    # As far as a node that was restarted from a checkpoint would be, and it gets a model of others.
    assert [step for step, _ in outcome] == [30] * 5
    assert torch.equal(outcome[2][1], torch.full((3,), 2.0))
    for i in (0, 1, 3, 4):
        assert torch.equal(outcome[i][1], thetas[i])


def test_nodes_that_run_go_back_to_the_earliest_of_them():
    steps = [50, 51, 52, 51, 49]
    thetas = [torch.zeros(3)] * 5
    limits = [running(step, kept=(50,)) for step in steps]
    assert [step for step, _ in rejoined(roster(ring(5)), steps, thetas, limits=limits)] == [49] * 5


@pytest.mark.parametrize("common", [False, True])
@pytest.mark.parametrize("claim", [(STEPS, 0), (50, STEPS), (2**62, 2**62)])
def test_a_member_cannot_end_the_run_by_claiming_its_end(common, claim):
    """It claims an iteration, and how far it goes back, that no honest node can have."""
    manifest, everyone = roster(complete(3)), torch.ones(3, dtype=torch.uint8)

    def exchange(messages, like):
        honest = {"step": torch.tensor([50, 30]), "has_model": everyone}
        return [honest, {"step": torch.tensor(claim), "has_model": everyone}]

    network = SimpleNamespace(manifest=manifest, name="n0", exchange=exchange)
    theta, like = torch.ones(3), torch.zeros(3)
    step, model = rejoin(network, 50, STEPS, theta, like, common=common, limits=running(50))
    assert step == 50
    assert torch.equal(model, theta)


def complete(n):
    return tacit.Topology.complete(n).mixing("metropolis")


def test_how_far_a_node_goes_back():
    assert RejoinLimits.of(50, 5, [30, 40], runs=True) == RejoinLimits(30, 55)
    assert RejoinLimits.of(50, 5, [49], runs=True) == RejoinLimits(45, 55)
    assert RejoinLimits.of(3, 5, [], runs=True) == RejoinLimits(0, 8)
    # After a restart it knows nothing of how far the others are.
    assert RejoinLimits.of(40, 5, [30, 40], runs=False) == RejoinLimits(30, NO_CEILING)


@pytest.mark.parametrize(("repeatable", "floor"), [
    (100.0, 30), (float("inf"), 30), (20.0, 30), (8.0, 42), (0.0, 50), (-3.0, 50),
])  # fmt: skip
def test_a_budget_must_pay_for_what_is_repeated(repeatable, floor):
    assert RejoinLimits(30, 55).within_budget(50, repeatable) == RejoinLimits(floor, 55)
