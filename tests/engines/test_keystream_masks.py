"""Every algorithm on keystreams: masks cancel, and one client needs only its own secret."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hosting import RecordingNetwork, ReplayNetwork, rows_of

import tacit
from support.suited import made, suited
from tacit import (
    ALGORITHMS,
    LPPA,
    Gaussian,
    Laplace,
    Misuse,
    Setting,
    Simulation,
    Topology,
    quadratic,
)
from tacit.algorithms.algorithm import tensors_of
from tacit.auditing import one_run as auditing
from tacit.auditing.options import AuditOptions
from tacit.core.hosted_clients import HostedClients
from tacit.core.neighbourhood import Neighbourhood
from tacit.engines.gradients.objective import HostedObjective
from tacit.privacy.keystreams import KeyRing

N, P, STEPS, SEED = 6, 3, 3, 4
# Meets every requirement of every algorithm.
RING = Topology.ring(N).mixing("metropolis", lazy=True)
DIRECTED = Topology.random_directed(N, 0.4, seed=2).mixing("sinkhorn", seed=3)


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# The same curvature everywhere, so noise that cancels does not change the average model.
TASK = quadratic(
    (torch.eye(P, dtype=torch.float64) + 0.2).repeat(N, 1, 1), draw(N, P), theta0=draw(N, P, seed=1)
)


@pytest.fixture(params=ALGORITHMS)
def algorithm(request):
    return made(ALGORITHMS[request.param])


def states(algorithm, graph=RING, steps=STEPS, **options):
    """The states after 0, 1, … iterations."""
    algorithm, task = suited(algorithm, TASK, graph)
    simulation = Simulation(
        Setting(algorithm, task, graph, seed=SEED, gradients="looped", **options)
    )
    simulation.start()
    yield simulation.state
    for _ in range(steps):
        simulation.step()
        yield simulation.state


def same(one, other):
    return all(torch.equal(rows, tensors_of(other)[name]) for name, rows in tensors_of(one).items())


# --- Every algorithm ---


def test_a_client_alone_needs_its_own_secret_only(algorithm):
    """As in a node: the rows of one client, from its key and the messages of the others."""
    keys = KeyRing.from_seed(N, SEED)
    algorithm, task = suited(algorithm, TASK, RING)
    simulation = Simulation(Setting(algorithm, task, RING, seed=SEED, gradients="looped", prg=keys))
    recording = RecordingNetwork(simulation.net)
    simulation.here = replace(simulation.here, net=recording)
    simulation.start()
    together = [simulation.state]
    for _ in range(STEPS):
        simulation.step()
        together.append(simulation.state)
    ids = [2]
    alone = HostedClients(
        Neighbourhood.of(RING.edges, np.array(ids), weights=RING.weights),
        ReplayNetwork(recording, RING, ids),
        HostedObjective(
            task, ids, task.loader(torch.tensor(ids), SEED, "cpu"), "looped", SEED, "cpu"
        ),
        replace(keys, secrets={2: keys.secrets[2]}).randomness(P, torch.float64),
        algorithm.gradients_per_step,
    )
    state = algorithm.start(alone)
    for t, all_clients in enumerate(together):
        if t > 0:
            state = algorithm.step(state, alone.at(t - 1))
        for name, expected in rows_of(ids, all_clients, RING).items():
            torch.testing.assert_close(getattr(state, name), expected, rtol=1e-12, atol=1e-12)


# --- LPPA ---


@pytest.mark.parametrize("graph", [RING, DIRECTED], ids=["ring", "directed"])
@pytest.mark.parametrize("law", [Laplace(1.0), Gaussian(1.0)])
def test_the_noise_differences_of_all_clients_sum_to_zero(graph, law):
    here = Simulation(Setting(LPPA(lr=0.1), TASK, graph, gradients="looped", prg="chacha20")).here
    for tick in (0, 1, 2):
        difference = here.graph.net_out(*replace(here, tick=tick).edge_noise("delta", law))
        assert float(difference.abs().min()) > 1e-6
        assert float(difference.sum(0).abs().max()) < 1e-12


@pytest.mark.parametrize("graph", [RING, DIRECTED], ids=["ring", "directed"])
@pytest.mark.parametrize(
    "options", [{}, {"fresh": True}, {"fresh": True, "masks": "sent"}], ids=str
)
def test_other_masks_but_the_same_sums(graph, options):
    algorithm = LPPA(lr=0.1, noise=Laplace(0.5), **options)
    runs = [states(algorithm, graph, steps=8, prg=prg) for prg in ("philox", "chacha20")]
    for t, (one, other) in enumerate(zip(*runs, strict=True)):
        for state in (one, other):
            torch.testing.assert_close(
                state.gamma.sum(0), state.grad.sum(0), rtol=1e-10, atol=1e-10
            )
        torch.testing.assert_close(one.theta.sum(0), other.theta.sum(0), rtol=1e-10, atol=1e-10)
        assert float((one.gamma - other.gamma).abs().max()) > 1e-2
        # Initial models and batches come from the seed.
        assert torch.equal(one.theta, other.theta) == (t == 0)
        if t == 0:
            assert torch.equal(one.grad, other.grad)


def test_masks_are_the_same_derived_and_sent():
    derived, sent = (
        states(LPPA(lr=0.1, masks=masks), prg="chacha20") for masks in ("derived", "sent")
    )
    assert all(same(one, other) for one, other in zip(derived, sent, strict=True))


# --- Where keys come from ---


def last(prg, seed=SEED):
    return tacit.run(TASK, LPPA(lr=0.1), RING, steps=2, seed=seed, prg=prg).theta


def test_keys_come_from_the_seed_or_are_given():
    keys = KeyRing.from_seed(N, SEED)
    assert torch.equal(last("chacha20"), last(keys))
    others = [
        last("philox"),
        last("chacha20", SEED + 1),
        last(replace(keys, generation=2)),
        last(replace(keys, federation="banks")),
        last(KeyRing.from_seed(N, SEED + 1)),
    ]
    assert not any(torch.equal(last(keys), other) for other in others)


def test_philox_is_the_default():
    assert torch.equal(
        last("philox"), tacit.run(TASK, LPPA(lr=0.1), RING, steps=2, seed=SEED).theta
    )


KNOWN_SOURCES = "Known: philox, chacha20, secret, or a KeyRing"


@pytest.mark.parametrize(
    ("prg", "words"),
    [
        ("chacha", ["'chacha'", "Did you mean 'chacha20'?", KNOWN_SOURCES]),
        (None, ["NoneType", KNOWN_SOURCES]),
        (KeyRing.from_seed(N - 1, 0), ["has 5 clients", "the task has 6", "same number"]),
        (replace(KeyRing.from_seed(N, 0), secrets={}), ["private keys of 0 of 6", "give all keys"]),
    ],
    ids=["unknown", "nothing", "too few", "without secrets"],
)
def test_other_sources_of_noise_are_refused(prg, words):
    with pytest.raises(Misuse) as caught:
        tacit.run(TASK, LPPA(lr=0.1), RING, steps=1, prg=prg)
    for word in words:
        assert word in str(caught.value)


# --- The same again ---


def test_a_run_keeps_its_keys_and_an_audit_repeats_its_messages(monkeypatch):
    keys = KeyRing.from_seed(N, 77)
    algorithm = LPPA(lr=0.1, noise=Laplace(0.5))
    run = tacit.run(
        TASK, algorithm, RING, steps=2, seed=SEED, prg=keys, transcript=tacit.Keep(insides=(1,))
    )
    assert run.setting.prg is keys
    recorded, record = [], auditing.record_iterations

    def keep(*given):
        recorded.append(record(*given))
        return recorded[0]

    monkeypatch.setattr(auditing, "record_iterations", keep)
    options = AuditOptions(iterations=2, attacks=False, heat_map=False)
    auditing.audit_one_run(run.setting, ["curious(1)"], options)
    (again,) = recorded
    assert len(again.messages) == len(run.transcript.messages) > 0
    for one, other in zip(again.messages, run.transcript.messages, strict=True):
        assert (one.tag, one.tick) == (other.tag, other.tick)
        assert torch.equal(one.rows, other.rows)
    assert again.held.keys() == run.transcript.held.keys()
    assert all(torch.equal(row, run.transcript.held[name]) for name, row in again.held.items())


def test_a_setting_does_not_show_secrets():
    keys = KeyRing.from_seed(N, 77)
    text = repr(tacit.Setting(LPPA(lr=0.1), TASK, RING, prg=keys))
    assert "KeyRing" in text
    assert not any(repr(secret)[2:-1] in text for secret in keys.secrets.values())
