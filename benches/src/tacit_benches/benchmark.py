"""What every benchmark takes and returns, and how it times functions.

Functions are timed in turn: a busy machine slows all of them alike, so their ratios hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import torch

TimedFunction = Callable[[], object]
# Called with what is measured and the numbers of finished and of all repeats.
Progress = Callable[[str, int, int], None]


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

    @property
    def repeats(self) -> int:
        return len(next(iter(self.seconds.values())))

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
class BenchOptions:
    """What to measure, and how thoroughly; without `repeats` each benchmark has its own number."""

    workloads: tuple[str, ...]
    device: torch.device
    repeats: int | None = None
    quick: bool = False
    progress: Progress = lambda title, done, total: None
    clock: Callable[[], float] = time.perf_counter

    def time(
        self,
        title: str,
        functions: Mapping[str, TimedFunction],
        repeats: int,
        quick_repeats: int,
        *,
        warmups: int = 1,
    ) -> Timings:
        """Call all functions in turn, A B C A B C …, and time each call.

        Args:
            title: What progress is reported under.
            functions: What to time, by name.
            repeats: Number of timed repeats, unless the options have one.
            quick_repeats: The same for quick measurements.
            warmups: Number of repeats before those, which are not counted.
        """
        count = warmups + (self.repeats or (quick_repeats if self.quick else repeats))
        taken: dict[str, list[float]] = {name: [] for name in functions}
        for repeat in range(count):
            for name, function in functions.items():
                seconds = self._seconds(function)
                if repeat >= warmups:
                    taken[name].append(seconds)
            self.progress(title, repeat + 1, count)
        return Timings(taken)

    def _seconds(self, function: TimedFunction) -> float:
        """The time of one call, without earlier work of a GPU and with all of its own."""
        self._synchronize()
        begin = self.clock()
        function()
        self._synchronize()
        return self.clock() - begin

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


@dataclass(frozen=True)
class BenchResult:
    """A ratio of two things that were measured in turn, with its meaning.

    Seconds are medians, of Tacit and of what it is compared with; `unit` is what takes that long.
    """

    bench: str
    workload: str
    ratio: Quartiles
    ours_seconds: float | None
    limit_seconds: float | None
    unit: str
    repeats: int
    meaning: str
    better: Literal["lower", "higher"] = "lower"
    details: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The result as plain values for JSON."""
        plain = dict(vars(self))
        quartiles, details = plain.pop("ratio"), plain.pop("details")
        ratio = {"ratio": quartiles.median, "low": quartiles.low, "high": quartiles.high}
        return plain | ratio | dict(details)


class Benchmark(Protocol):
    """A module of this package that measures something.

    `SUMMARY` says in a line what is compared with what; `WORKLOADS` are all that can be measured.
    `DEFAULTS` are those to measure on a kind of device if none are given; none if it cannot run
    there.
    """

    SUMMARY: str
    WORKLOADS: tuple[str, ...]
    DEFAULTS: Mapping[str, tuple[str, ...]]

    def measure(self, options: BenchOptions) -> Iterator[BenchResult]:
        """Measure the workloads of the options, one after the other."""
        ...
