"""What an algorithm tolerates of a changing world, and why not the rest.

Theory decides. Mixing with weights that change is covered where an algorithm needs nothing of W but
that sums are kept and that edges connect all clients over time (Nedić & Ozdaglar 2009; Koloskova et
al. 2020 for SGD; Nedić, Olshevsky & Shi 2017 for gradient tracking; Nedić & Olshevsky 2015 for
directed graphs). A client that is absent is one without edges that keeps its state. Late messages
keep the fixed points of an iteration, but not its sums, unless each of them is used once.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from tacit.core.errors import Misuse
from tacit.graph import World

UNSTATED = "the algorithm does not declare that it allows this"


@dataclass(frozen=True)
class Tolerance:
    """Why an algorithm cannot run in a changing world: ends of sentences, empty where it can.

    Attributes:
        changing_graph: Why the graph must not change.
        absent_clients: Why all clients must take part in every iteration.
        late_messages: Why messages must not be late.
        only_with: An option and its value without which it tolerates none of these, and why.
        uses_once: Whether it uses each late message once, when it arrives, so that sums over
            clients and messages on their way are kept. Others use rows of the past, again or never.
    """

    changing_graph: str = UNSTATED
    absent_clients: str = UNSTATED
    late_messages: str = UNSTATED
    only_with: tuple[str, Any, str] | None = None
    uses_once: bool = False

    @property
    def allowed(self) -> list[str]:
        """What it tolerates, in words."""
        return [
            field.name.replace("_", " ")
            for field in fields(self)
            if field.name not in ("only_with", "uses_once") and not getattr(self, field.name)
        ]

    def check(self, algorithm: Any, world: World) -> None:
        """Raise Misuse with the reason if the algorithm does not tolerate this world."""
        if world.is_static:
            return
        for happens, what, why, remedy in (
            (world.schedule is not None, "a graph that changes", self.changing_graph,
             "Give it a fixed graph"),
            (world.has_absent_clients, "clients that are absent", self.absent_clients,
             "Let all clients take part"),
            (world.has_delays, "late messages", self.late_messages, "Leave out the delay"),
        ):  # fmt: skip
            if happens and why:
                raise Misuse(
                    f"{algorithm.name} does not allow {what}: {why}.",
                    f"{remedy}, or choose another algorithm: `tacit algorithms --json` says which "
                    "allow it.",
                )
        if self.only_with is not None:
            option, value, why = self.only_with
            if getattr(algorithm, option) != value:
                raise Misuse(
                    f"{algorithm.name} in a changing world needs {option} = {value}: {why}.",
                    f"Set {option} = {str(value).lower()}.",
                )


def refused(reason: str) -> Tolerance:
    """No tolerance, for one reason."""
    return Tolerance(reason, reason, reason)


ALL = Tolerance("", "", "")
SUMS_KEPT = (
    "trackers sum to the gradients of all clients only if each message enters once with its "
    "weight, and late ones enter twice or never"
)
TRACKING = Tolerance("", "", SUMS_KEPT)
EDGE_VARIABLES = "its variables belong to edges, and both ends must keep them from start to end"
EXACT_DIFFUSION = (
    "it adds the change that the last combination made, which corrects the bias only of a "
    "combination that stays the same"
)
