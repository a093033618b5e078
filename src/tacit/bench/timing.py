"""Interleaved timing: a busy machine slows all functions alike, so their ratios hold."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

TimedFunction = Callable[[], object]
# Called after every repeat with the numbers of finished and of all repeats.
RepeatCallback = Callable[[int, int], None]


@dataclass(frozen=True)
class Quartiles:
    """A median between its quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Quartiles:
        low, median, high = np.quantile(values, (0.25, 0.5, 0.75))
        return cls(float(median), float(low), float(high))


@dataclass(frozen=True)
class Timings:
    """Seconds that each function took, one number per repeat."""

    seconds: Mapping[str, Sequence[float]]

    def median(self, *names: str) -> float:
        """The median of the time of these functions together."""
        return Quartiles.of(self._sum(names)).median

    def ratio(self, ours: str | Sequence[str], to: str, scale: float = 1.0) -> Quartiles:
        """`scale` times our time divided by another; one ratio per repeat, against outliers."""
        names = (ours,) if isinstance(ours, str) else ours
        pairs = zip(self._sum(names), self.seconds[to], strict=True)
        return Quartiles.of([scale * own / other for own, other in pairs])

    def _sum(self, names: Sequence[str]) -> list[float]:
        return [sum(repeat) for repeat in zip(*(self.seconds[name] for name in names), strict=True)]


@dataclass(frozen=True)
class Timer:
    """Times functions whose work is complete once `synchronize` returns."""

    clock: Callable[[], float] = time.perf_counter
    synchronize: Callable[[], None] = lambda: None

    @classmethod
    def for_device(cls, device: torch.device | str) -> Timer:
        """A timer that waits for the GPU before and after each call."""
        if torch.device(device).type == "cuda":
            return cls(synchronize=lambda: torch.cuda.synchronize(device))
        return cls()

    def seconds(self, function: TimedFunction) -> float:
        """The time of one call."""
        self.synchronize()
        begin = self.clock()
        function()
        self.synchronize()
        return self.clock() - begin

    def interleave(
        self,
        functions: Mapping[str, TimedFunction],
        repeats: int,
        *,
        warmups: int = 1,
        on_repeat: RepeatCallback | None = None,
    ) -> Timings:
        """Call all functions in turn, A B C A B C …, and time each call.

        Args:
            functions: What to time, by name.
            repeats: Number of timed repeats.
            warmups: Number of repeats before those, which are not counted.
            on_repeat: Called after every repeat.
        """
        taken: dict[str, list[float]] = {name: [] for name in functions}
        for repeat in range(warmups + repeats):
            for name, function in functions.items():
                seconds = self.seconds(function)
                if repeat >= warmups:
                    taken[name].append(seconds)
            if on_repeat is not None:
                on_repeat(repeat + 1, warmups + repeats)
        return Timings(taken)
