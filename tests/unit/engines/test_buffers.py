"""Memory is recycled only if nothing else refers to it."""

import runpy
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch

import tacit
from support.suited import made, suited
from tacit import (
    ALGORITHMS,
    DSGT,
    LPPA,
    Graph,
    Setting,
    Simulation,
    Topology,
    quadratic,
)
from tacit.algorithms.algorithm import Algorithm, tensors_of
from tacit.engines import buffers, lazy_rows
from tacit.engines.buffers import KEPT, Buffers

N, P = 6, 3
REUSING = {
    "dsgt": DSGT(lr=0.05),
    "lppa": LPPA(lr=0.05),
    "lppa, fresh": LPPA(lr=0.05, fresh=True),
    "dsgt, local steps": DSGT(lr=0.05, local_steps=3),
    "lppa, local steps": LPPA(lr=0.05, local_steps=3),
}


@pytest.fixture
def graph():
    return Topology.ring(N).mixing("metropolis", lazy=True)


@pytest.fixture
def task():
    rng = np.random.default_rng(5)
    root = rng.normal(size=(N, P, P))
    A = torch.tensor(root @ root.transpose(0, 2, 1) / P + np.eye(P))
    return quadratic(
        A, torch.tensor(rng.normal(size=(N, P))), theta0=torch.tensor(rng.normal(size=(N, P)))
    )


@pytest.fixture(params=REUSING)
def reusing(request):
    return REUSING[request.param]


def begun(algorithm, task, graph, steps=0, **options):
    run = Simulation(Setting(algorithm, task, graph, seed=1, gradients="stacked"), **options)
    run.start()
    for _ in range(steps):
        run.step()
    return run


def places(run):
    return {tensor.data_ptr() for tensor in tensors_of(run.state).values()}


@pytest.fixture
def never_again(monkeypatch):
    """Call it, and memory is not used again from then on."""
    return lambda: monkeypatch.setattr(lazy_rows, "is_only_reference", lambda *parts: False)


@pytest.fixture(params=[-1, 0, 1])
def counted_otherwise(request, monkeypatch):
    """As in a version of Python that counts fewer or more references, such as 3.14."""
    monkeypatch.setattr(buffers, "getrefcount", lambda x: sys.getrefcount(x) + request.param)
    monkeypatch.setattr(buffers, "ONLY_IN_LIST", buffers.references([object()]))
    buffers._counts_of_unshared_memory.cache_clear()
    yield
    buffers._counts_of_unshared_memory.cache_clear()


# Ways to hold a reference to a state, and how to read the numbers from it later.
ONLOOKERS = {
    "the state": lambda run: (run.state, lambda held: held.theta),
    "a tensor": lambda run: (run.state.theta, lambda held: held),
    "another tensor": lambda run: (run.state.gamma, lambda held: held),
    "the last gradient": lambda run: (run.state.grad, lambda held: held),
    "a view": lambda run: (run.state.theta[2:4], lambda held: held),
    "a view of the end": lambda run: (run.state.gamma.view(-1)[-1:], lambda held: held),
    "a detached tensor": lambda run: (run.state.gamma.detach(), lambda held: held),
    "an array": lambda run: (run.state.theta.numpy(), torch.as_tensor),
    "a part of an array": lambda run: (run.state.grad.numpy()[1:, :2], torch.as_tensor),
    "a buffer of an array": lambda run: (
        memoryview(run.state.theta.numpy()),
        lambda held: torch.as_tensor(np.asarray(held)),
    ),
    "a storage": lambda run: (
        run.state.theta.untyped_storage(),
        lambda held: torch.empty(0, dtype=torch.float64).set_(held),
    ),
    "another package's tensor": lambda run: (torch.from_dlpack(run.state.gamma), lambda held: held),
    "a closure": lambda run: (_closure(run.state.theta), lambda held: held()),
    "a dictionary": lambda run: (tensors_of(run.state), lambda held: held["grad"]),
    "a field's dictionary": lambda run: (vars(run.state), lambda held: held["theta"]),
}


def _closure(theta):
    return lambda: theta


# Every way with one algorithm, every algorithm with two ways.
HELD = [(name, "lppa, fresh") for name in ONLOOKERS]
HELD += [(name, label) for name in ("the state", "a view") for label in REUSING]


@pytest.mark.parametrize(("name", "label"), HELD)
def test_referenced_memory_is_never_written_into(name, label, task, graph):
    plain = begun(REUSING[label], task, graph, steps=6)
    watched = begun(REUSING[label], task, graph)
    seen = []
    for _ in range(6):
        held, read = ONLOOKERS[name](watched)
        seen.append((held, read, read(held).clone()))
        watched.step()
        assert all(torch.equal(read(held), before) for held, read, before in seen)
    assert all(
        map(torch.equal, tensors_of(plain.state).values(), tensors_of(watched.state).values())
    )


def test_unreferenced_memory_is_recycled(reusing, task, graph):
    run = begun(reusing, task, graph, steps=2)
    seen = set()
    for _ in range(8):
        run.step()
        seen |= places(run)
    assert len(seen) <= 4  # three tensors of a state, and one to write into


def test_memory_is_recycled_when_a_reference_is_gone(reusing, task, graph):
    run = begun(reusing, task, graph, steps=2)
    held = run.state.theta
    run.step()
    del held
    run.step()
    seen = set()
    for _ in range(6):
        run.step()
        seen |= places(run)
    assert len(seen) <= 4


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.filterwarnings("ignore::tacit.core.errors.Caution")
def test_transcripts_are_the_same_either_way(name, task, graph, never_again):
    algorithm, suitable = suited(made(ALGORITHMS[name]), task, graph)

    def record():
        keep = tacit.Keep(insides=(0, 2), theta0=True)
        return tacit.run(suitable, algorithm, graph, steps=5, seed=1, transcript=keep).transcript

    again = record()
    never_again()
    fresh = record()
    assert len(again.messages) == len(fresh.messages) > 0
    for one, other in zip(again.messages, fresh.messages, strict=True):
        assert (one.tick, one.verb, one.tag) == (other.tick, other.verb, other.tag)
        assert torch.equal(one.rows, other.rows)
    assert again.held.keys() == fresh.held.keys()
    assert all(torch.equal(rows, fresh.held[name]) for name, rows in again.held.items())


@dataclass(frozen=True)
class Window:
    theta: torch.Tensor
    older: torch.Tensor


class Averaging(Algorithm):
    """Gossip that remembers, in a view of an earlier state."""

    name = "averaging"
    paper = protects = "none"
    requires = ()

    def start(self, here) -> Window:
        return Window(here.theta0, here.theta0)

    def step(self, s, here):
        (theta,) = here.net.mix(theta=s.theta)
        return Window(theta, s.older[1:] if len(s.older) == N else s.older)


def test_what_python_counts_changes_neither_results_nor_the_use_of_memory(
    counted_otherwise, task, graph
):
    fresh = REUSING["lppa, fresh"]
    run, plain = begun(fresh, task, graph, steps=2), begun(fresh, task, graph)
    seen, states = set(), []
    for _ in range(6):
        run.step()
        seen |= places(run)
    for _ in range(8):
        states.append((plain.state, plain.state.theta.clone()))
        plain.step()
    assert len(seen) <= 4
    assert torch.equal(run.state.theta, plain.state.theta)
    assert all(torch.equal(state.theta, before) for state, before in states)


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_what_python_counts_is_measured_at_import(monkeypatch, more):
    count = sys.getrefcount
    monkeypatch.setattr(sys, "getrefcount", lambda x: count(x) + more)
    module = runpy.run_path(buffers.__file__)
    held = object()
    assert module["is_only_in"]([object()])
    assert not module["is_only_in"]([held])


def test_a_state_may_look_at_a_part_of_an_earlier_one(task, graph):
    run = begun(Averaging(), task, graph)
    remembered = run.state.older[1:].clone()
    for _ in range(5):
        run.step()
        assert torch.equal(run.state.older, remembered)


def test_buffers_give_what_fits_and_was_given():
    buffers = Buffers()
    one, two = torch.zeros(2, 3), torch.zeros(2, 3)
    buffers.give(one)
    assert buffers.take(one) is not one  # what is read must not be written into
    assert buffers.take(torch.zeros(3, 2)) is not one
    assert buffers.take(torch.zeros(2, 3, dtype=torch.float64)) is not one
    assert buffers.take(two) is one
    assert buffers.take(two) is not one


def test_few_tensors_wait():
    buffers = Buffers()
    given = [torch.zeros(2, 3) for _ in range(KEPT + 3)]
    for tensor in given:
        buffers.give(tensor)
    taken = [buffers.take(torch.ones(2, 3)) for _ in given]
    assert sum(any(one is tensor for tensor in given) for one in taken) == KEPT


def test_a_graph_too_sparse_to_be_dense_uses_memory_again():
    clients = 100
    A, b = torch.eye(P).repeat(clients, 1, 1), torch.randn(clients, P)
    graph = Graph.from_matrix(Topology.ring(clients).mixing().W)
    run = begun(DSGT(lr=0.05), quadratic(A, b), graph, steps=2)
    seen = set()
    for _ in range(6):
        run.step()
        seen |= places(run)
    assert len(seen) <= 4
