"""The guarantee of a configuration: which algorithm keeps it, and for how many samples."""

from __future__ import annotations

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.private_algorithm import PrivateAlgorithm, require_samples
from tacit.config.sections import Config, PrivacySection
from tacit.core.checks import check_number
from tacit.core.errors import Misuse, prefix_errors
from tacit.graph import Graph
from tacit.privacy.guarantee import Privacy
from tacit.privacy.population import Population
from tacit.tasks import Task
from tacit.tasks.parts import Parts


def with_guarantee(
    config: Config, algorithm: Algorithm, task: Task, graph: Graph, steps: int
) -> Algorithm:
    """The algorithm with the noise that keeps the promise of [privacy] for so many iterations.

    Raises:
        Misuse: If the promise cannot be kept, or the algorithm needs one and there is none.
    """
    if not isinstance(algorithm, PrivateAlgorithm):
        require_no_promise(config, algorithm)
        return algorithm
    section = promise_section(config, algorithm)
    clients = graph.clients
    with prefix_errors("[privacy]"):
        parts, _ = require_samples(task)
        samples = section.samples or _samples(parts, clients)
        batch = sampling_rate(section, config.run.batch_size, clients, samples) * samples
        facts = Population(clients, samples, batch, task.parameters, steps)
        return algorithm.prepared(make_promise(section), facts, graph)


def require_no_promise(config: Config, algorithm: Algorithm) -> None:
    """Raise Misuse if [privacy] promises what an algorithm does not keep."""
    if config.privacy is not None:
        raise Misuse(
            f"[privacy] promises a guarantee, which {algorithm.name} does not keep.",
            "Choose an algorithm that does (`tacit algorithms`), or remove the section.",
        )


def promise_section(config: Config, algorithm: Algorithm) -> PrivacySection:
    """The section [privacy], which an algorithm needs."""
    if config.privacy is None:
        raise Misuse(
            f"{algorithm.name} keeps a guarantee, and none is given.",
            "Add one: [privacy] epsilon = 3.0 (or inf for sums without noise).",
        )
    return config.privacy


def make_promise(section: PrivacySection) -> Privacy:
    return Privacy(
        section.epsilon, section.delta, section.unit, section.honest, section.noise_multiplier
    )


def sampling_rate(section: PrivacySection, batch_size: int, clients: int, samples: int) -> float:
    """The probability that an iteration draws a sample: as given, or the batches over samples."""
    if section.sampling_rate is None:
        return min(1.0, clients * batch_size / samples)
    check_number("sampling_rate", section.sampling_rate, above=0, at_most=1, example=0.01)
    return section.sampling_rate


def _samples(parts: Parts, clients: int) -> int:
    """The training samples of all clients; a node knows its own only."""
    if parts.clients == clients:
        return int(parts.sizes.sum())
    raise Misuse(
        "How many training samples all clients have together is not known.",
        "Set privacy.samples, e.g. samples = 60000. The number is public.",
    )
