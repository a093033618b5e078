"""The guarantee of a configuration: which algorithm keeps it, and for how many samples."""

from __future__ import annotations

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.private_algorithm import PrivateAlgorithm
from tacit.config.options import prefix_errors
from tacit.config.sections import Config
from tacit.core.errors import Misuse
from tacit.graph import Graph
from tacit.privacy.guarantee import Privacy
from tacit.privacy.population import Population
from tacit.tasks import Task
from tacit.tasks.parts import Parts


def with_guarantee(
    config: Config, algorithm: Algorithm, task: Task, graph: Graph, steps: int
) -> Algorithm:
    """The algorithm with the noise that keeps the promise of [privacy].

    Raises:
        Misuse: If the promise cannot be kept, or the algorithm needs one and there is none.
    """
    section = config.privacy
    if not isinstance(algorithm, PrivateAlgorithm):
        if section is None:
            return algorithm
        raise Misuse(
            f"[privacy] promises a guarantee, which {algorithm.name} does not keep.",
            'Choose algorithm.name = "private-sgd", or remove the section.',
        )
    if section is None:
        raise Misuse(
            f"{algorithm.name} keeps a guarantee, and none is given.",
            "Add one: [privacy] epsilon = 3.0 (or inf for sums without noise).",
        )
    with prefix_errors("[privacy]"):
        promise = Privacy(section.epsilon, section.delta, section.unit, section.honest)
        clients, batch = graph.clients, config.run.batch_size
        samples = section.samples or _samples(task, clients)
        facts = Population(clients, samples, clients * batch, task.parameters, steps)
        return algorithm.prepared(promise, facts, graph)


def _samples(task: Task, clients: int) -> int:
    """The training samples of all clients; a node knows its own only."""
    if isinstance(task.parts, Parts) and task.clients == clients:
        return int(task.parts.sizes.sum())
    raise Misuse(
        "How many training samples all clients have together is not known.",
        "Set privacy.samples, e.g. samples = 60000. The number is public.",
    )
