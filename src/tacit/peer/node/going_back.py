"""How far a node goes back at a change of the roster, and which claims of others it believes.

Nodes continue from the earliest iteration that one of them names. Repeated iterations release more
messages, so a node goes back only as far as an honest one may have to:

- Nodes that run are at most as many iterations apart as there are nodes.
- A node that was restarted has the state of its last checkpoint. Others save as often as this node
  does, so its own older checkpoint says how far back that can be.
- With a promised guarantee, the budget must pay for the iterations that are repeated, and for the
  rest of the run.

A node that is further behind than that takes the model of the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

NO_CEILING = 2**62  # iterations


@dataclass(frozen=True)
class RejoinLimits:
    """Iterations that a node accepts to continue from.

    Attributes:
        floor: It does not go back further.
        ceiling: No honest node can be ahead of it.
    """

    floor: int = 0
    ceiling: int = NO_CEILING

    @classmethod
    def of(cls, step: int, clients: int, kept: Sequence[int], *, runs: bool) -> RejoinLimits:
        """The limits of a node that has a model.

        Args:
            step: Iterations that it has done.
            clients: Nodes of the roster before the change.
            kept: The iterations of its checkpoints under that roster.
            runs: Whether it has trained under that roster since it was started.
        """
        explained = min([step - clients, *kept]) if runs else min([step, *kept])
        return cls(max(0, explained), step + clients if runs else NO_CEILING)

    def within_budget(self, step: int, repeatable: float) -> RejoinLimits:
        """The limits of a node at iteration `step` whose budget allows to repeat so many."""
        paid = step - math.floor(max(0.0, min(repeatable, float(step))))
        return replace(self, floor=max(self.floor, paid))
