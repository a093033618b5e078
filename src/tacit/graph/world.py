"""What changes around an algorithm: the graph, the clients that take part, and late messages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tacit.core.errors import Misuse
from tacit.graph.graph import Graph
from tacit.graph.participation import Flags, Participation
from tacit.graph.schedule import GraphSchedule, weighted


@dataclass(frozen=True, eq=False)
class Moment:
    """The world in one iteration.

    Attributes:
        graph: The edges that carry messages, with their weights.
        present: The clients that take part, [N]; None: all of them.
        delays: How many iterations late the message on each edge is, [E]; None: not at all.
        arriving: Where each message is used once: which of those sent 0, 1, … iterations ago
            arrive, [E] each. Empty without delays.
    """

    graph: Graph
    present: Flags | None = None
    delays: npt.NDArray[np.int64] | None = None
    arriving: tuple[Flags, ...] = ()


@dataclass(frozen=True, eq=False)
class World:
    """The graph of each iteration, who takes part in it, and which messages are late.

    A pure function of the iteration: simulator, transcripts and audits ask it for the same moments.

    Args:
        graph: The fixed graph, or the union of a schedule.
        schedule: The graph of each iteration; None: always the same.
        participation: Who takes part; None: everyone, without delay.
        seed: Of the run.
    """

    graph: Graph
    schedule: GraphSchedule | None = None
    participation: Participation | None = None
    seed: int = 0

    @classmethod
    def of(cls, world: Graph | World) -> World:
        """A world of one graph that never changes, or the given world."""
        return world if isinstance(world, World) else cls(world)

    def __str__(self) -> str:
        parts = [] if self.schedule is None else [f"the graph changes: {self.schedule}"]
        parts += [] if self.participation is None else [str(self.participation)]
        return "; ".join(parts) or str(self.graph)

    def describe(self) -> str:
        """Describe the graph in one line, and what changes."""
        graph = self.graph
        if self.schedule is None:
            return graph.describe() if self.is_static else f"{graph.describe()}; {self}"
        # The speed of consensus is not that of the union.
        edges = f"{graph.clients} clients, {len(graph.edges)} directed edges"
        return f"{self}; all edges together: {edges}"

    @property
    def clients(self) -> int:
        return self.graph.clients

    @cached_property
    def is_static(self) -> bool:
        """Whether all iterations are alike."""
        return self.schedule is None and not (self.has_absent_clients or self.has_delays)

    @property
    def has_absent_clients(self) -> bool:
        """Whether some clients do not take part in some iterations."""
        return self.participation is not None and self.participation.has_absent_clients

    @property
    def has_delays(self) -> bool:
        """Whether messages may be late."""
        return self.participation is not None and self.participation.delay > 0

    @property
    def longest_delay(self) -> int:
        return 0 if self.participation is None else self.participation.delay

    def check(self) -> None:
        """Raise Misuse if its parts do not fit each other."""
        if self.participation is None:
            return
        self.participation.check_clients(self.clients)
        if self.has_delays and self.schedule is not None:
            raise Misuse(
                "Late messages do not go with a graph that changes: a message may arrive when its "
                "edge is gone, and no mixing weight is defined for it.",
                "Give a fixed graph, or no delay.",
            )
        if self.has_absent_clients:
            # Weights for some of the edges only must be possible.
            for t in self.first_uses:
                self.at(t)

    @property
    def first_uses(self) -> list[int]:
        """Iterations in which graphs are used first, as far as known before a run."""
        return [0] if self.schedule is None else self.schedule.first_uses

    def at(self, t: int) -> Moment:
        """The world in iteration t, counted from 0; what `start` does happens in that of t = 0."""
        graph = self.graph if self.schedule is None else self.schedule.at(t, self.seed)
        participation = self.participation
        if participation is None:
            return Moment(graph)
        if participation.delay:
            when = t, self.seed, graph.edges
            return Moment(graph, None, participation.delays(*when), participation.arriving(*when))
        if not participation.has_absent_clients:
            return Moment(graph)
        present = participation.present(t, self.seed, self.clients)
        name = f"{int(present.sum())} clients of {graph.topology.name}"
        kept = graph.edges[present[graph.edges].all(axis=1)]
        return Moment(weighted(kept, graph, name), present)
