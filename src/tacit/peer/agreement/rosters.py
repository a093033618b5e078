"""The rosters that members can agree on: the operator's, without those who are suspended."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache

from tacit.config.sections import Config
from tacit.core.errors import Misuse
from tacit.graph import Graph
from tacit.peer.agreement.quorum import Unsafe
from tacit.peer.agreement.statements import Change
from tacit.peer.federation.absence import check_neighbours
from tacit.peer.federation.agreed_settings import check_runnable, updated_graph
from tacit.peer.federation.graph_table import format_graph, graph_table
from tacit.peer.federation.manifest import Manifest
from tacit.peer.federation.roster import format_members


class FederationRosters:
    """What follows on an operator's roster. Every member computes the same, to the bit.

    The graph is the one that the operator would make by `remove`: of the same kind, or else with
    the remaining edges.
    """

    def __init__(self, base: Manifest) -> None:
        self.base = base
        self._graph = cache(self._make_graph)

    def manifest(self, change: Change) -> Manifest:
        """The roster after a change; raises Unsafe."""
        base, absent = self.base, change.absent
        graph, config = self._graph(absent)
        members = tuple(member for member in base.members if member.name not in absent)
        # The digest must not depend on itself.
        agreed = asdict(replace(change, digest="", step=0))
        parts = [base.hash.hex(), json.dumps(agreed, sort_keys=True)]
        topology = graph_table(graph)
        text = "\n".join([*parts, format_members(members), format_graph(topology)])
        return replace(
            base,
            members=members,
            topology=topology,
            config=config,
            text=text.encode(),
            base=base.hash,
            epoch=change.epoch,
            suspended=tuple((one.name, one.since) for one in change.suspended),
            returned=tuple((one.name, one.epoch) for one in change.returned),
        )

    def digest(self, change: Change) -> str:
        return hashlib.sha256(self.manifest(change).text).hexdigest()

    def neighbours(self, suspended: frozenset[str]) -> Mapping[str, frozenset[str]]:
        graph, _ = self._graph(suspended)
        names = [name for name in self.base.names if name not in suspended]
        found: dict[str, set[str]] = {name: set() for name in names}
        for a, b in graph.edges.tolist():
            found[names[a]].add(names[b])
            found[names[b]].add(names[a])
        return {name: frozenset(others) for name, others in found.items()}

    def _make_graph(self, suspended: frozenset[str]) -> tuple[Graph, Config]:
        """The graph and configuration of those who are left; raises Unsafe."""
        base = self.base
        if not suspended:
            return base.graph, base.config
        names = [name for name in base.names if name not in suspended]
        gone = ", ".join(sorted(suspended))
        if len(names) < 2:
            raise Unsafe(f"without {gone} only one node would be left")
        try:
            try:
                graph, config = updated_graph(base, names, None)
            except Misuse:
                # No graph of this kind has so many nodes.
                graph, config = updated_graph(base, names, [])
            check_runnable(config, graph)
            check_neighbours(graph, names, base.absence)
        except Misuse as problem:
            raise Unsafe(f"without {gone}: {problem.problem}") from None
        return graph, config
