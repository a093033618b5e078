"""What members do without others: how long they wait, and how few neighbours are too few.

The manifest has it in [absence]. Rosters that members agree on have a number of their own: the
generation of the operator's roster, and an epoch that counts the agreements since then.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tacit.core.errors import Misuse

if TYPE_CHECKING:
    from tacit.graph import Graph

FOREVER = "forever"
PATIENCE = re.compile(r"([1-9][0-9]{0,5})(s|m|h|d)")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
SHORTEST = 2  # seconds; shorter pauses are common
EPOCH = 1_000_000  # what an epoch adds to the number of a roster
PATIENCE_REMEDY = 'Write a number with s, m, h or d, e.g. "10m", or "forever".'
MIN_NEIGHBOURS = "min_neighbours"


@dataclass(frozen=True)
class AbsenceRules:
    """How members treat the absence of others.

    Attributes:
        patience: How long a member may be silent before the others go on without it.
        min_neighbours: A node with fewer neighbours does not train.
    """

    patience: str = FOREVER
    min_neighbours: int = 1

    def __post_init__(self) -> None:
        parse_patience(self.patience)
        if type(self.min_neighbours) is not int or not 1 <= self.min_neighbours < EPOCH:
            problem = f"min_neighbours = {self.min_neighbours!r} is not a number of neighbours."
            raise Misuse(problem, "Give 1 or more; 2 suits algorithms that mask messages.")

    @property
    def seconds(self) -> float:
        return parse_patience(self.patience)

    def as_dict(self) -> dict[str, Any]:
        return {"patience": self.patience, MIN_NEIGHBOURS: self.min_neighbours}


def parse_patience(text: object) -> float:
    """Seconds, infinite for "forever".

    Example:
        >>> parse_patience("10m")
        600.0
    """
    if text == FOREVER:
        return math.inf
    found = PATIENCE.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise Misuse(f"patience = {text!r:.80} is not a time.", PATIENCE_REMEDY)
    seconds = float(int(found[1]) * SECONDS[found[2]])
    if seconds < SHORTEST:
        problem = f"patience = {text!r} is too short: members pause for longer without a fault."
        raise Misuse(problem, f"Give {SHORTEST}s or more; 10m is usual.")
    return seconds


WAIT_FOREVER = AbsenceRules()


def roster_number(generation: int, epoch: int) -> int:
    """One number for a generation and an epoch: that of the generation if there is no epoch."""
    return generation + epoch * EPOCH


def roster_order(number: int) -> tuple[int, int]:
    """Generation and epoch of a roster's number: a larger pair is a newer roster."""
    return number % EPOCH, number // EPOCH


def roster_name(number: int) -> str:
    """A roster's number for people: generation 2, or generation 2.1 after an agreement."""
    generation, epoch = roster_order(number)
    return f"generation {generation}.{epoch}" if epoch else f"generation {generation}"


def neighbour_counts(graph: Graph) -> list[int]:
    """How many clients each client shares an edge with, in either direction."""
    import numpy as np  # only to train: commands that read a manifest do without

    both_ways = np.unique(np.concatenate((graph.edges, graph.edges[:, ::-1])), axis=0)
    return [int(count) for count in np.bincount(both_ways[:, 0], minlength=graph.clients)]


def check_neighbours(graph: Graph, names: Sequence[str], rules: AbsenceRules) -> None:
    """Raise Misuse if a node has fewer neighbours than the federation requires."""
    least = rules.min_neighbours
    few = [name for name, count in zip(names, neighbour_counts(graph), strict=True)
           if count < least]  # fmt: skip
    if few:
        who = ", ".join(few[:5]) + (", …" if len(few) > 5 else "")
        raise Misuse(
            f"{who} would have fewer than {least} neighbours (min_neighbours = {least}): too few "
            "to protect each other.",
            "Keep more nodes, or list more edges with --edges, e.g. --edges a:b,b:c. To train "
            "with fewer all the same: tacit federation set FOLDER --min-neighbours 1.",
        )
