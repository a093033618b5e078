"""The front door: `tacit.run` takes names or objects, and says what to write instead."""

import inspect

import networkx as nx
import pytest
import torch

import tacit
from support.misuse import assert_mentions, misuse_message
from tacit.algorithms.algorithm import options_of
from tacit.core.errors import Misuse
from tacit.graph.named import TOPOLOGIES


@pytest.fixture
def task():
    draw = torch.Generator().manual_seed(0)
    return tacit.quadratic(torch.eye(2).repeat(6, 1, 1), torch.randn(6, 2, generator=draw))


def batches(samples=12):
    x = torch.arange(3.0 * samples).reshape(3, samples, 1) / 10
    return tacit.Task(torch.nn.Linear(1, 2), [(part, part[:, 0] > 1) for part in x], batch_size=4)


def test_the_ring_is_the_default_and_names_are_objects(task):
    ring = tacit.Topology.ring(6)
    by_name = tacit.run(task, "lppa", steps=5, lr=0.1, noise=tacit.Laplace(0.1))
    assert str(by_name.setting.graph) == "ring(6), metropolis weights"
    for graph in ("ring", ring, ring.mixing("metropolis")):
        algorithm = tacit.LPPA(lr=0.1, noise=tacit.Laplace(0.1))
        assert torch.equal(tacit.run(task, algorithm, graph, steps=5).theta, by_name.theta)


@pytest.mark.parametrize("name", ["ring", "complete", "star", "exponential", "directed-ring"])
def test_families_without_options_go_by_their_names(task, name):
    run = tacit.run(task, "push-sum", name, steps=2, lr=0.1)
    expected = TOPOLOGIES[name](6).mixing()
    assert (run.setting.graph.weights != expected.weights).nnz == 0
    assert run.setting.graph.doubly_stochastic


def test_matchings_go_by_their_name_and_schedules_as_they_are(task):
    named = tacit.run(task, "dsg", "matchings", steps=4, lr=0.1)
    schedule = tacit.Matchings(tacit.Topology.complete(6))
    assert torch.equal(named.theta, tacit.run(task, "dsg", schedule, steps=4, lr=0.1).theta)
    phases = [(tacit.Topology.ring(6).mixing(), 2), (tacit.Topology.star(6).mixing(), 1)]
    assert tacit.run(task, "dsg", phases, steps=4, lr=0.1).theta.shape == (6, 2)


def test_parts_of_an_algorithm_go_by_their_names(task):
    named = tacit.run(task, "admm", steps=3, solver="exact")
    made = tacit.run(task, tacit.ADMM(solver=tacit.ExactSolver()), steps=3)
    assert torch.equal(named.theta, made.theta)


def test_epochs_are_passes_over_the_data(task):
    steps = [run.history[-1].step for run in (
        tacit.run(batches(12), "dsgt", epochs=2, lr=0.1),
        tacit.run(batches(12), "dsgt", epochs=0.5, lr=0.1),
        # An iteration with two local steps uses two batches.
        tacit.run(batches(24), "dsgt", epochs=2, lr=0.1, local_steps=2),
        tacit.run(task, "dsgt", epochs=7, lr=0.1),
    )]  # fmt: skip
    assert steps == [6, 2, 6, 7]


def test_schedules_count_the_epochs_of_the_task():
    task, warm = batches(12), tacit.Cosine(0.1, steps=6)
    given = tacit.Robust(tacit.DSG(lr=tacit.Cosine(0.1, epochs=2)), "trimmed-mean", liars=1)
    run = tacit.run(task, given, "complete", epochs=2)
    assert run.setting.algorithm.inner.lr == warm
    assert tacit.run(task, "dsgt", epochs=1, lr=tacit.Cosine(0.1, epochs=2)).theta.shape == (3, 4)


WRONG = {
    "no length": ({}, ["Neither epochs nor steps", "epochs=10", "steps=1000"]),
    "two lengths": ({"epochs": 1, "steps": 3}, ["Both epochs and steps"]),
    "no epochs": ({"epochs": 0}, ["epochs is 0", "e.g. 10"]),
    "half a step": ({"steps": 1.5}, ["steps is 1.5", "whole number"]),
    "unknown algorithm": ({"algorithm": "lpaa", "steps": 1}, ["'lpaa'", "Did you mean 'lppa'?"]),
    "unknown option": ({"steps": 1, "momentm": 0.9}, ["momentm", "Did you mean 'momentum'?"]),
    "misspelt length": ({"step": 10}, ["step is not an option", "Did you mean 'steps'?"]),
    "missing option": ({"algorithm": "dsgt", "lr": None, "steps": 1}, ["dsgt needs lr", "lr=0.05"]),
    "bound of a guarantee": ({"algorithm": "private-sgd", "clip": 1.0, "steps": 1}, ["Privacy("]),
    "what it cannot have": ({"algorithm": "edsg", "optimizer": "adam", "steps": 1}, ["optimizer"]),
    "options of an object": (
        {"algorithm": tacit.LPPA(lr=0.1), "momentum": 0.9, "steps": 1},
        ["LPPA(…, lr=…, momentum=…)"],
    ),
    "a class": ({"algorithm": tacit.LPPA, "steps": 1}, ["algorithm is", "tacit.LPPA(lr=0.1)"]),
    "unknown graph": ({"graph": "rign", "steps": 1}, ["'rign'", "Did you mean 'ring'?"]),
    "graph with options": (
        {"graph": "grid", "steps": 1},
        ["needs rows and columns", "tacit.Topology.grid(rows, columns)"],
    ),
    "unknown part": ({"algorithm": "defl-vp", "codec": "rnd-k", "steps": 1}, ["'rnd-k'", "rand-k"]),
    "part with options": ({"noise": "laplace", "steps": 1}, ["tacit.Laplace(scale=…)"]),
    "no task": ({"task": "lppa", "steps": 1}, ["task is a str", "tacit.Task(model, clients)"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_makes_no_sense_is_said(task, name):
    given, words = WRONG[name]
    options = {"task": task, "algorithm": "lppa", "lr": 0.1} | given
    options = {key: value for key, value in options.items() if value is not None}
    assert_mentions(misuse_message(tacit.run, **options), *words)


def test_no_option_of_an_algorithm_is_hidden_by_one_of_the_run():
    taken = set(inspect.signature(tacit.run).parameters)
    assert [
        name for name in tacit.ALGORITHMS if taken & set(options_of(tacit.ALGORITHMS[name]))
    ] == []


def test_the_old_spelling_says_the_new_one():
    message = misuse_message(lambda: tacit.simulate)
    assert_mentions(message, "tacit.run(task, algorithm, graph, steps=…)")
    with pytest.raises(tacit.Misuse, match=r"tacit\.run"):
        from tacit import simulate  # noqa: F401


def test_arguments_in_the_wrong_place_and_of_the_wrong_type_name_the_right_ones() -> None:
    parts = [(torch.randn(6, 2), torch.tensor([0, 1] * 3)) for _ in range(3)]
    task = tacit.Task(torch.nn.Linear(2, 2), parts)
    with pytest.raises(Misuse, match=r"batch_size is not an option of dsgt\..* tacit\.Task"):
        tacit.run(task, "dsgt", steps=1, lr=0.1, batch_size=2)
    for graph in (nx.cycle_graph(3), torch.ones(3, 3) / 3):
        with pytest.raises(Misuse, match=r"from_networkx.*Graph\.from_matrix"):
            tacit.run(task, "dsgt", graph, steps=1, lr=0.1)
    with pytest.raises(Misuse, match=r"a list of edges.*from_edges"):
        tacit.run(task, "dsgt", [[0, 1], [1, 2]], steps=1, lr=0.1)
    with pytest.raises(Misuse, match=r"test has no samples"):
        tacit.Task(torch.nn.Linear(2, 2), parts, test=(torch.zeros(0, 2), torch.zeros(0).long()))
