"""Everything that determines a run."""

from __future__ import annotations

from dataclasses import dataclass

# NumPy's integers are registered with it.
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal

import torch

from tacit.algorithms.algorithm import Algorithm
from tacit.core.devices import Precision, check_precision
from tacit.core.errors import Misuse
from tacit.engines.gradients.personal import check_local
from tacit.graph import Graph, GraphSchedule, Participation, Topology, World
from tacit.tasks import Objective
from tacit.tasks.metrics.metric import Metrics

if TYPE_CHECKING:
    from tacit.privacy.keystreams import KeyRing  # Needs cryptography, which is optional.

Generator = Literal["philox", "chacha20", "secret"]

# How other things become graphs, for messages.
OTHER_GRAPHS = (
    ', e.g. tacit.Topology.ring(8).mixing("metropolis"): tacit.Topology.from_networkx(graph) and '
    "tacit.Graph.from_matrix(W) make one of graphs of networkx and of mixing weights"
)


@dataclass(frozen=True, eq=False)
class Setting:
    """Everything that determines a run: the same setting gives the same messages.

    Attributes:
        algorithm: The algorithm with its options.
        task: What each client minimises, on which data.
        graph: The communication graph, with mixing weights.
        seed: Keys batches, initial weights and noise.
        device: `"cpu"` or a CUDA device.
        gradients: `"auto"` computes gradients of all clients at once where that can be done,
            `"looped"` one client after the other.
        prg: Where noise comes from: `"philox"`, the fast generator; `"chacha20"`, keystreams as
            real nodes derive them, of keys made from the seed; `"secret"`, the same of a key that
            the operating system draws when the run begins, so that no run has the same; or given
            keys.
        precision: How gradients are computed: in `"float32"`, in `"tf32"` on a GPU, or in `"bf16"`
            by autocast. Models, messages and updates stay as they are.
        metrics: What is recorded beside loss and accuracy: names, or functions by name.
        schedule: The graph of each iteration, if it changes; `graph` is then its union.
        participation: Which clients take part when, and which messages are late.
    """

    algorithm: Algorithm
    task: Objective
    graph: Graph
    seed: int = 0
    device: torch.device | str = "cpu"
    gradients: str = "auto"
    prg: Generator | KeyRing = "philox"
    precision: Precision = "float32"
    metrics: Metrics | None = None
    schedule: GraphSchedule | None = None
    participation: Participation | None = None

    @property
    def world(self) -> World:
        """The graph of each iteration, who takes part in it, and which messages are late."""
        return World(self.graph, self.schedule, self.participation, int(self.seed))

    @property
    def is_simulated(self) -> bool:
        """Whether samples and noise follow from a seed that others may know."""
        return self.prg != "secret"

    def require_static(self, what: str) -> None:
        """Raise `Misuse` if the graph changes, clients are absent or messages are late."""
        if not self.world.is_static:
            raise Misuse(
                f"{what} need a fixed graph, all clients and no delay; here {self.world}.",
                "Audit the algorithm on a fixed graph, without [participation].",
            )

    @property
    def start_alike(self) -> bool:
        """Whether all clients start from one model, which each of them therefore knows."""
        first = self.task.initial(int(self.seed), range(self.task.clients))
        return len(first) > 1 and bool((first == first[0]).all())

    def check(self) -> None:
        """Raise `Misuse` if the parts are not what they should be or do not fit each other."""
        if isinstance(self.graph, Topology):
            raise Misuse(
                "The graph has no weights yet.", 'Add them: topology.mixing("metropolis").'
            )
        if isinstance(self.graph, GraphSchedule):
            raise Misuse(
                "The graph of a setting is a schedule.",
                "Give Setting(graph=schedule.union, schedule=schedule), or use tacit.run.",
            )
        for name, kind in (("task", Objective), ("graph", Graph)):
            if not isinstance(value := getattr(self, name), kind):
                remedy = f"Give a tacit.{kind.__name__}{OTHER_GRAPHS if kind is Graph else ''}."
                raise Misuse(f"{name} is a {type(value).__name__}.", remedy)
        if not isinstance(self.participation, Participation | None):
            raise Misuse(
                f"participation is {self.participation!r}.",
                "Give tacit.Participation(share=0.5), or None.",
            )
        if not isinstance(self.algorithm, Algorithm):
            raise Misuse(
                f"algorithm is {self.algorithm!r}.",
                "Give one of tacit.ALGORITHMS, made with its options.",
            )
        if not hasattr(self.algorithm, "name"):
            problem = f"{type(self.algorithm).__name__} has no name."
            raise Misuse(problem, 'Add one to the class: name = "my-algorithm".')
        if self.task.clients != self.graph.clients:
            raise Misuse(
                f"The task has {self.task.clients} clients, the graph {self.graph.clients}.",
                "Give both the same number of clients.",
            )
        seed: Any = self.seed
        if isinstance(seed, bool) or not isinstance(seed, Integral):
            raise Misuse(f"seed is {self.seed!r}.", "Give a whole number.")
        check_precision(self.precision, self.task.dtype)
        self.algorithm.check_world(self.world)
        check_fit(self.algorithm, self.task)
        if self.algorithm.needs_total and not self.start_alike and self.task.clients > 1:
            raise Misuse(
                f"{self.algorithm.name} trains one model, but the clients start from different "
                "ones.",
                'Let them start from one: init="same" or init="module".',
            )


def check_fit(algorithm: Algorithm, task: Objective) -> None:
    """Raise `Misuse` if an algorithm's options do not fit the task."""
    algorithm.check_width(task.parameters)
    check_local(algorithm, task)
    if algorithm.needs_minimiser:
        task.require_proximal()
