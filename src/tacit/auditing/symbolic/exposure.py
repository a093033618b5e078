"""Which client learns whose gradients: every client as an adversary of every other.

One factorization per adversary serves all its victims.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from tacit.auditing.adversary import Adversary
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.leakage import Leakage, Question
from tacit.auditing.symbolic.linear_knowledge import Status
from tacit.auditing.symbolic.row_space import Matrix
from tacit.auditing.symbolic.symbolic_run import SymbolicRun

Level = Literal["nothing", "noisy", "sum", "difference", "gradient"]
LEVELS: tuple[Level, ...] = get_args(Level)
LEVEL_OF: dict[tuple[Question, Status], Level] = {
    ("gradient", "noisy"): "noisy",
    ("sum", "exact"): "sum",
    ("group", "exact"): "sum",
    ("combination", "exact"): "difference",
    ("difference", "exact"): "difference",
    ("update", "exact"): "gradient",
    ("gradient", "exact"): "gradient",
}
MEANING = {
    "nothing": "no gradient by linear combinations",
    "noisy": "noisy gradients",
    "sum": "exact sums over honest clients",
    "difference": "exact differences or other combinations of gradients",
    "gradient": "exact gradients, or exact sums of local steps",
}


@dataclass(frozen=True, eq=False)
class Exposure:
    """What client a learns about client v after `steps` iterations."""

    levels: np.ndarray[Any, np.dtype[np.int64]]  # [a, v]: index into LEVELS; −1 for a = v
    deviations: Matrix  # [a, v]: of the noise on the gradient that a knows best; may be infinite
    steps: int

    def as_dict(self) -> dict[str, Any]:
        levels = self.levels.tolist()
        return {
            "iterations": self.steps,
            "learns": [[None if level < 0 else LEVELS[level] for level in row] for row in levels],
            "noise_deviation": [
                [None if np.isinf(x) else float(x) for x in row] for row in self.deviations
            ],
            "meaning": MEANING,
        }


def compute_exposure(
    run: SymbolicRun, progress: Callable[[int], None] = lambda client: None
) -> Exposure:
    """The exposure of all pairs of clients; `progress` gets the number of each adversary."""
    clients = run.clients
    levels = np.full((clients, clients), -1, dtype=np.int64)
    deviations = np.full((clients, clients), np.inf)
    for a in range(clients):
        knowledge = Knowledge(run, Adversary.curious(a))
        for v in range(clients):
            if v != a:
                levels[a, v], deviations[a, v] = _highest_level(Leakage(knowledge, v))
        progress(a)
    return Exposure(levels, deviations, run.steps)


def _highest_level(leakage: Leakage) -> tuple[int, float]:
    """The level, and the least noise on any gradient of the victim."""
    strongest = leakage.strongest
    level = "nothing" if strongest is None else LEVEL_OF.get(strongest, "nothing")
    if level == "gradient":
        return LEVELS.index(level), 0.0
    variances = leakage.of("gradient").variances
    return LEVELS.index(level), float(np.sqrt(variances.min(initial=np.inf)))
