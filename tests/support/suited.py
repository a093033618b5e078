"""Registered algorithms with what each needs to run: options, a suitable task, a guarantee."""

from dataclasses import dataclass, replace

import torch

import tacit
from tacit.algorithms.private_algorithm import PrivateAlgorithm, prepare
from tacit.privacy.population import Population
from tacit.tasks.parts import Parts

# Of the options that must be given.
GIVEN = {"lr": 0.05, "solver": tacit.QuadraticSolver(mu=0.25)}
PROMISE = tacit.Privacy(epsilon=3.0)
# Iterations that a guarantee covers: more than tests run.
COVERED = 20
# How often a client has its data if these become samples, and how many it draws on average.
COPIES, BATCH = 4, 2


@dataclass(frozen=True)
class Changed:
    """A mechanism but for some values, which a mechanism itself does not let anyone change."""

    mechanism: object
    values: dict

    def __getattr__(self, name):
        return self.values[name] if name in self.values else getattr(self.mechanism, name)


def made(kind, **options):
    """An algorithm of this class with the options it must be given, and others."""
    given = {name: GIVEN[name] for name in kind.__dataclass_fields__ if name in GIVEN}
    return kind(**given | options)


def suited(algorithm, task, graph, *, promise=PROMISE, steps=COVERED, batch_size=BATCH):
    """The algorithm with the noise that keeps a promise, and the task as it needs it.

    Algorithms that keep no promise, and their tasks, are returned as they are.
    """
    if isinstance(algorithm, PrivateAlgorithm):
        task = task if task.batch_size else sampled(task, batch_size)
        task = with_one_start(task) if algorithm.needs_total else task
        algorithm = prepare(algorithm, promise, task, graph, steps)
    return algorithm, task


def guaranteed(algorithm, graph, *, promise=PROMISE, parameters=6, steps=COVERED):
    """The algorithm with the noise that keeps a promise, for runs on symbols, without a task."""
    if not isinstance(algorithm, PrivateAlgorithm):
        return algorithm
    samples = COPIES * graph.clients
    facts = Population(graph.clients, samples, BATCH * graph.clients, parameters, steps)
    return algorithm.prepared(promise, facts, graph)


def sampled(task, batch_size=BATCH):
    """A task with full gradients as one with samples: each client has its data several times."""

    def loss(theta, *arrays):
        each = [task.loss(theta, *(array[k] for array in arrays)) for k in range(len(arrays[0]))]
        return torch.stack(each).mean()

    parts = [tuple(torch.stack([array] * COPIES) for array in part) for part in task.parts]
    return replace(task, loss=loss, parts=Parts.concatenate(parts), batch_size=batch_size)


def with_one_start(task):
    """The task with the first client's first model for all clients."""

    def initial(seed, clients):
        return task.initial(seed, [0]).repeat(len(clients), 1)

    return replace(task, initial=initial)
