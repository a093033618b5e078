"""Independent trials with one canary each, in copies of the graph, and the bound they give on ε."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from tacit.auditing.attacks.reconstruction_attacks import Progress
from tacit.auditing.bounds.added_noise import Bound
from tacit.auditing.canaries.copies import Canaries, ObservedCopies, disjoint_copies, run_copies
from tacit.auditing.client_names import client_name
from tacit.auditing.scoring.coin_guesses import CoinBound, independent_trials_bound
from tacit.auditing.symbolic.row_space import Matrix
from tacit.core.randomness import Philox, derive_key
from tacit.core.workers import WorkerPool
from tacit.engines.setting import Setting

TRIALS = 100_000
ACCUSING = 0.999  # confidence from which on a contradiction is called a defect
WIDTH = 2  # coordinates of a canary, at most
FEWEST = 1_000  # trials that run together, at least
Outcome = tuple[CoinBound, float, float | None, int, float, bool]


@dataclass(frozen=True)
class TrialsResult(ABC):
    """What independent trials show about one victim, beside what is proved."""

    unit: ClassVar[str]
    victim: int
    adversary: str
    upper: Bound
    iterations: int
    width: int
    lower: CoinBound
    almost_sure: float  # ε is at least this with `ACCUSING` confidence
    gaussian_epsilon: float | None  # at least, if noise is Gaussian; None: it is not
    trials: int
    seconds: float
    stopped: bool  # by the limit of time

    @property
    @abstractmethod
    def assumptions(self) -> list[str]: ...

    @property
    def is_defect(self) -> bool:
        """Whether the lower bound exceeds the proved one also with `ACCUSING` confidence."""
        return self.almost_sure > self.upper.epsilon and self.upper.delta <= self.lower.delta

    def measured(self, scope: str, gaussian: str) -> str:
        """The lower bound in words, and what it is if something is Gaussian."""
        lower = self.lower
        text = f"ε ≥ {lower.epsilon:.3g} with {lower.confidence:.0%} confidence {scope}"
        text += f"from {self.trials:,} trials"
        if self.gaussian_epsilon is None:
            return text
        return f"{text} (ε ≥ {self.gaussian_epsilon:.3g} if {gaussian} is Gaussian)"

    def as_dict(self) -> dict[str, Any]:
        return {
            "unit": self.unit,
            "victim": self.victim,
            "adversary": self.adversary,
            **self.lower.as_dict(),
            "epsilon_at_least_if_gaussian": self.gaussian_epsilon,
            "epsilon_at_most": self.upper.epsilon,
            "is_defect": self.is_defect,
            "trials": self.trials,
            "iterations": self.iterations,
            "width": self.width,
            "seconds": self.seconds,
            "stopped": self.stopped,
            "assumptions": self.assumptions,
        }


@dataclass(frozen=True, eq=False)
class Trials:
    """Trials with canaries of one kind, in copies of a setting's graph."""

    kind: str
    setting: Setting
    steps: int  # iterations of a trial
    victim: int
    delta: float
    confidence: float
    count: int
    together: int  # how many run together, at most
    seconds: float  # limit of time, for all but those that run first
    seed: int
    progress: Progress | None

    def run(
        self,
        draw: Callable[[int, int], tuple[Canaries, Tensor]],
        score: Callable[[ObservedCopies], Matrix],
        gaussian: Callable[..., float] | None,
        component: Sequence[int] | None = None,
    ) -> Outcome:
        """Guess the coins, and bound ε by the guesses.

        Args:
            draw: Makes canaries from a number of copies and a key, with the coins, bool [copies].
            score: Scores [copies] of the coins, from what is observed.
            gaussian: Bounds ε if noise is Gaussian; None if it is not.
            component: Clients of a copy over which totals are observed; by default all.

        Returns:
            The last fields of `TrialsResult`.
        """
        self.setting.require_static("Canaries")
        parts = math.ceil(self.count / self.together)
        copies = math.ceil(self.count / parts)
        union, begun = disjoint_copies(self.setting.graph, copies), time.perf_counter()
        scores, coins = [], []
        for part in range(parts):
            if part and time.perf_counter() - begun > self.seconds:
                break
            key = derive_key(self.seed, self.kind, part)
            canaries, heads = draw(copies, key)
            width, pool = canaries.directions.shape[1], WorkerPool.for_device(canaries.device)
            noise = Philox(key, width, canaries.dtype, pool)
            run = self.setting.algorithm, union, self.steps, canaries, noise, component
            scores.append(score(run_copies(*run)))
            coins.append(heads.numpy())
            if self.progress is not None:
                done = min(self.count, copies * (part + 1))
                name = client_name(self.victim, self.setting.task.names)
                self.progress(f"guessing {self.kind} of client {name}", done, self.count)
        found = np.concatenate(scores)[: self.count], np.concatenate(coins)[: self.count]
        given = {"delta": self.delta, "confidence": self.confidence}
        return (
            independent_trials_bound(*found, **given),
            independent_trials_bound(*found, self.delta, ACCUSING).epsilon,
            gaussian(*found, **given) if gaussian is not None and self.delta > 0 else None,
            len(found[0]),
            time.perf_counter() - begun,
            len(scores) < parts,
        )
