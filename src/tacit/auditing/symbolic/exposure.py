"""Who learns whose gradients: every client as an adversary of every other, after T iterations.

One factorization per adversary answers for all its victims.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tacit.auditing.adversary import Adversary
from tacit.auditing.symbolic.echelon import Matrix
from tacit.auditing.symbolic.findings import Findings
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.symbols import SymbolicRun

Level = Literal["nothing", "noisy", "sum", "difference", "gradient"]
LEVELS: tuple[Level, ...] = ("nothing", "noisy", "sum", "difference", "gradient")
MEANING = {
    "nothing": "no gradient by linear means",
    "noisy": "gradients with noise on them",
    "sum": "exact sums over all honest clients it is connected with",
    "difference": "exact differences of gradients",
    "gradient": "exact gradients, or updates of several local steps",
}


@dataclass(frozen=True, eq=False)
class Exposure:
    """levels[a, v]: the most that client a learns of client v's gradients, as a place in LEVELS; −1 for a = v.

    deviations[a, v] is the noise that is left on the gradient that a knows best, infinite where none is seen.
    """

    levels: np.ndarray[Any, np.dtype[np.int64]]
    deviations: Matrix
    steps: int

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        shown = [
            [None if level < 0 else LEVELS[level] for level in row] for row in self.levels.tolist()
        ]
        noise = [[None if np.isinf(x) else float(x) for x in row] for row in self.deviations]
        return {
            "iterations": self.steps,
            "learns": shown,
            "noise_deviation": noise,
            "meaning": MEANING,
        }


def exposure(
    run: SymbolicRun,
    extra: Adversary | None = None,
    progress: Callable[[int], None] = lambda adversary: None,
) -> Exposure:
    """The matrix for a run on symbols; each client may have an accomplice, such as an eavesdropper."""
    clients = run.clients
    levels = np.full((clients, clients), -1, dtype=np.int64)
    deviations = np.full((clients, clients), np.inf)
    for a in range(clients):
        adversary = Adversary.curious(a) if extra is None else Adversary.curious(a) | extra
        know = Knowledge(run, adversary)
        for v in range(clients):
            if v not in adversary.corrupt:
                levels[a, v], deviations[a, v] = _most(know, v)
        progress(a)
    return Exposure(levels, deviations, run.steps)


def _most(know: Knowledge, victim: int) -> tuple[int, float]:
    """The level and the least noise on any gradient of the victim."""
    taken = know.run.gradients(victim)
    if not taken:
        return LEVELS.index("nothing"), np.inf
    gradients = np.stack([know.vector((u, 1.0)) for u in taken])
    found = Findings(know, victim)
    updates = [know.vector(*zip(u, (1.0,) * len(u), strict=True)) for u in found.updates]
    if know.exact(np.concatenate((gradients, *(update[None] for update in updates)))).any():
        return LEVELS.index("gradient"), 0.0
    best = float(np.sqrt(know.variances(gradients).min()))
    if len(taken) > 1 and know.exact(gradients[1:] - gradients[:-1]).any():
        return LEVELS.index("difference"), best
    sums = np.stack(
        [know.vector(*[(u._replace(client=i), 1.0) for i in found.component]) for u in taken]
    )
    if know.exact(sums).any():
        return LEVELS.index("sum"), best
    return LEVELS.index("nothing" if np.isinf(best) else "noisy"), best
