"""The worst coalition: which k neighbours of a victim learn most about it together.

All subsets of k neighbours are examined if there are at most `EXHAUSTIVE` neighbours, else a random
sample of stated size. More members never know less, but which members count depends on the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from tacit.auditing.adversary import Adversary
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.leakage import ABOUT_GRADIENTS, Leakage
from tacit.auditing.symbolic.symbolic_run import SymbolicRun
from tacit.core.checks import is_count
from tacit.core.errors import Misuse

EXHAUSTIVE = 12  # neighbours up to which every subset is examined
SAMPLE = 200  # subsets examined beyond that


@dataclass(frozen=True, eq=False)
class Coalition:
    """The worst of the coalitions of one size."""

    leakage: Leakage
    examined: int
    possible: int

    @property
    def adversary(self) -> Adversary:
        return self.leakage.knowledge.adversary

    @property
    def scope(self) -> str:
        """How many coalitions this is the worst of."""
        if self.examined == self.possible:
            return f"the worst of all {self.possible}"
        return f"the worst of {self.examined} drawn at random from {self.possible}"


def neighbours_of(run: SymbolicRun, victim: int) -> list[int]:
    """The clients that send to a victim or receive from it."""
    ends = [edge for edge in run.transcript.edges if victim in edge]
    return sorted({client for edge in ends for client in edge} - {victim})


def worst_coalition(
    run: SymbolicRun,
    victim: int,
    size: int,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Coalition:
    """The coalition of `size` neighbours that learns most about the victim.

    Raises:
        Misuse: The victim has fewer neighbours.
    """
    neighbours = neighbours_of(run, victim)
    if not is_count(size, 1) or size > len(neighbours):
        raise Misuse(
            f"There is no coalition of {size!r} neighbours: client {victim} has {len(neighbours)}.",
            f"Give a size from 1 to {len(neighbours)}.",
        )
    possible = comb(len(neighbours), size)
    coalitions = _subsets(neighbours, size, possible)
    worst: tuple[tuple[float, ...], Leakage] | None = None
    for done, members in enumerate(coalitions):
        leakage = Leakage(Knowledge(run, Adversary.curious(*members)), victim)
        severity = severity_of(leakage)
        if worst is None or severity > worst[0]:
            worst = severity, leakage
        progress(done + 1, len(coalitions))
    assert worst is not None
    return Coalition(worst[1], len(coalitions), possible)


def severity_of(leakage: Leakage) -> tuple[float, ...]:
    """Larger is worse: exact answers to each question, then how little noise is on a gradient."""
    exact = [float(leakage.knowledge.exact(leakage.of(q).vectors).sum()) for q in ABOUT_GRADIENTS]
    least = float(leakage.of("gradient").variances.min(initial=np.inf))
    # Rounded, so that equal coalitions are equal.
    least = float(f"{least:.6g}")
    return *exact, -least, float(len(leakage.of("image").indices("exact")))


def _subsets(neighbours: list[int], size: int, possible: int) -> list[tuple[int, ...]]:
    if len(neighbours) <= EXHAUSTIVE or possible <= SAMPLE:
        return list(combinations(neighbours, size))
    rng = np.random.default_rng(0)
    drawn: set[tuple[int, ...]] = set()
    while len(drawn) < SAMPLE:
        drawn.add(tuple(sorted(rng.choice(neighbours, size, replace=False).tolist())))
    return sorted(drawn)
