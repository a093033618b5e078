"""ε against coalitions of every size, where masked sums are all that they learn.

What a coalition learns depends on the connected parts that are left of the graph without it: the
fewer clients are left in a victim's part, the less noise is on their sum. Coalitions of one size
are grouped by their smallest part, and one of each group is examined on symbols.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import networkx as nx

from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.added_noise import Bound
from tacit.auditing.bounds.threat import Threat
from tacit.auditing.bounds.whole_run import whole_run_bound
from tacit.auditing.client_names import client_name
from tacit.auditing.symbolic.symbols import step_on_symbols
from tacit.engines.setting import Setting

# Coalitions of one size that are counted; sizes with more are left out.
MOST_COALITIONS = 2_000
# Groups that a table has room for.
MOST_GROUPS = 12


@dataclass(frozen=True)
class CoalitionBound:
    """What coalitions of one size learn that leave equally small parts of the graph.

    Attributes:
        example: One of them.
        alike: How many there are.
        possible: How many coalitions have this size.
        part: The smallest part that the example leaves.
        bound: The guarantee for a client of this part, for one sample and the whole run.
        names: The names of all clients, if they have some.
    """

    example: tuple[int, ...]
    alike: int
    possible: int
    part: tuple[int, ...]
    bound: Bound
    names: tuple[str, ...] = ()

    @property
    def learns(self) -> str:
        """All that such a coalition learns, in a few words."""
        if len(self.part) == 1:
            return f"noisy sums of client {client_name(self.part[0], self.names)} alone"
        return f"noisy sums of {len(self.part)} clients or more"

    @property
    def who(self) -> str:
        """The coalitions, in a few words."""
        count = "all" if self.alike == self.possible else f"{self.alike} of"
        example = ", ".join(client_name(client, self.names) for client in self.example)
        return f"{count} {self.possible}, e.g. {{{example}}}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "size": len(self.example),
            "example": list(self.example),
            "alike": self.alike,
            "possible": self.possible,
            "smallest_part": list(self.part),
            "epsilon": self.bound.epsilon,
            "delta": self.bound.delta,
        }


def coalition_bounds(setting: Setting, steps: int, delta: float) -> list[CoalitionBound]:
    """Bounds against coalitions of every size, up to all clients but one.

    Empty if coalitions learn more than sums over samples, or there is no bound.

    Args:
        setting: What determines the run.
        steps: Iterations of the whole run.
        delta: δ of the guarantee.
    """
    algorithm, graph = setting.algorithm, setting.graph
    run = step_on_symbols(algorithm, graph, 0)
    if not run.samplings:
        return []
    bounds = []
    for example, alike, part in _groups(graph.clients, graph.edges.tolist()):
        threat = Threat.of(setting, Adversary.curious(*example), part[0], delta)
        if threat.view(run).only_sum() is None:
            return []
        bound = whole_run_bound(algorithm, graph, threat, steps)
        if bound is None:
            return []
        possible = math.comb(graph.clients, len(example))
        bounds.append(CoalitionBound(example, alike, possible, part, bound, setting.task.names))
    return bounds


Group = tuple[tuple[int, ...], int, tuple[int, ...]]  # a coalition, how many alike, smallest part


def _groups(clients: int, edges: list[list[int]]) -> list[Group]:
    """Coalitions by size and by the size of the smallest part that they leave."""
    graph = nx.empty_graph(clients)
    graph.add_edges_from(edges)
    groups: dict[tuple[int, int], list[Group]] = {}
    for size in range(1, clients):
        if math.comb(clients, size) > MOST_COALITIONS:
            continue
        for coalition in combinations(range(clients), size):
            rest = graph.subgraph(set(graph) - set(coalition))
            part = min((tuple(sorted(part)) for part in nx.connected_components(rest)), key=len)
            key = size, -len(part)
            groups.setdefault(key, []).append((coalition, 0, part))
    shown = [(some[0][0], len(some), some[0][2]) for _, some in sorted(groups.items())]
    if len(shown) > MOST_GROUPS:
        # The worst of each size, and of those the first.
        worst = {len(example): (example, alike, part) for example, alike, part in shown}
        shown = list(worst.values())[: MOST_GROUPS - 1] + list(worst.values())[-1:]
    return shown
