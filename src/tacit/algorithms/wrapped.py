"""An algorithm that runs another one's text with another network."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, get_type_hints

from tacit.algorithms.algorithm import Algorithm
from tacit.core.errors import Misuse
from tacit.core.here import Here, Network
from tacit.core.hosted_clients import HostedClients
from tacit.graph import Graph, World
from tacit.privacy.guarantee import Budget

# Everything that a class of algorithms declares.
INHERITED = tuple(get_type_hints(Algorithm))


@dataclass(frozen=True, eq=False)
class WrappedAlgorithm(Algorithm):
    """The algorithm `inner`, whose network is replaced."""

    inner: Algorithm

    def __post_init__(self) -> None:
        for name in INHERITED:
            object.__setattr__(self, name, getattr(self.inner, name))

    @property
    def budget(self) -> Budget | None:
        return self.inner.budget

    @property
    def gradients_per_step(self) -> int:
        return self.inner.gradients_per_step

    @property
    def needs_minimiser(self) -> bool:
        return self.inner.needs_minimiser

    @property
    def state_class(self) -> type[Any]:
        return self.inner.state_class

    def check_graph(self, graph: Graph) -> None:
        self.inner.check_graph(graph)

    def check_world(self, world: World) -> None:
        self.inner.check_world(world)
        self.check_graph(world.graph)

    def audit_remarks(self, graph: Graph) -> list[str]:
        return self.inner.audit_remarks(graph)

    def cautions(self, graph: Graph) -> list[str]:
        return self.inner.cautions(graph)

    def remarks(self, graph: Graph) -> list[str]:
        return self.inner.remarks(graph)

    def check_width(self, width: int) -> None:
        self.inner.check_width(width)

    def start(self, here: Here) -> Any:
        return self.inner.start(self._wrapped(here))

    def step(self, s: Any, here: Here) -> Any:
        return self.inner.step(s, self._wrapped(here))

    def _wrapped(self, here: Here) -> Here:
        if not isinstance(here, HostedClients):
            raise Misuse("These clients cannot have another network.", "Use hosted clients.")
        return here.with_network(self.network(here))

    @abstractmethod
    def network(self, here: HostedClients) -> Network:
        """The network that the inner algorithm gets."""
