"""Timing pieces of work in turns, so that a busy machine slows all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

Work = Callable[[], object]
Turns = Callable[[int, int], None]  # told after every turn: how many are done, of how many


@dataclass(frozen=True)
class Quartiles:
    """A median between its quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Quartiles:
        """Median and quartiles of some values."""
        low, median, high = np.quantile(values, (0.25, 0.5, 0.75))
        return cls(float(median), float(low), float(high))


@dataclass(frozen=True)
class Timings:
    """Seconds that each piece of work took, turn by turn."""

    seconds: Mapping[str, Sequence[float]]

    def median(self, *names: str) -> float:
        """The median over the turns of what these pieces took together."""
        return Quartiles.of(self._together(names)).median

    def ratio(self, ours: str | Sequence[str], to: str, scale: float = 1.0) -> Quartiles:
        """`scale` times ours over theirs, each turn by itself: a turn that was disturbed is one value of many."""
        names = (ours,) if isinstance(ours, str) else ours
        pairs = zip(self._together(names), self.seconds[to], strict=True)
        return Quartiles.of([scale * mine / theirs for mine, theirs in pairs])

    def _together(self, names: Sequence[str]) -> list[float]:
        return [sum(turn) for turn in zip(*(self.seconds[name] for name in names), strict=True)]


def nothing_to_wait_for() -> None:
    """The end of work on a CPU: it is done when it returns."""


@dataclass(frozen=True)
class Stopwatch:
    """Measures work that is complete once `finish` returns."""

    clock: Callable[[], float] = time.perf_counter
    finish: Callable[[], None] = nothing_to_wait_for

    @classmethod
    def on(cls, device: torch.device | str) -> Stopwatch:
        """A stopwatch for work on a device; a GPU is waited for before and after."""
        if torch.device(device).type == "cuda":
            return cls(finish=lambda: torch.cuda.synchronize(device))
        return cls()

    def seconds(self, work: Work) -> float:
        """How long it takes, once."""
        self.finish()
        begin = self.clock()
        work()
        self.finish()
        return self.clock() - begin

    def interleaved(
        self,
        works: Mapping[str, Work],
        repeats: int,
        *,
        warmups: int = 1,
        turns: Turns | None = None,
    ) -> Timings:
        """Do all pieces of work in turns, A B C A B C …; the first `warmups` turns are not counted."""
        taken: dict[str, list[float]] = {name: [] for name in works}
        for turn in range(warmups + repeats):
            for name, work in works.items():
                seconds = self.seconds(work)
                if turn >= warmups:
                    taken[name].append(seconds)
            if turns is not None:
                turns(turn + 1, warmups + repeats)
        return Timings(taken)
