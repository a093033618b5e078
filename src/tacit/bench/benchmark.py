"""What every benchmark takes and returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch

from tacit.bench.timing import Quartiles, RepeatCallback, TimedFunction, Timer, Timings

# Called with what is measured and the numbers of finished and of all repeats.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class BenchOptions:
    """What to measure, and how thoroughly; without `repeats` each benchmark has its own number."""

    workloads: tuple[str, ...]
    device: torch.device
    repeats: int | None = None
    quick: bool = False
    progress: Progress = lambda title, done, total: None

    def repeat_count(self, default: int, quick: int) -> int:
        return self.repeats or (quick if self.quick else default)

    def progress_of(self, title: str) -> RepeatCallback:
        return lambda done, total: self.progress(title, done, total)

    def time(
        self, title: str, functions: Mapping[str, TimedFunction], repeats: int, warmups: int = 1
    ) -> Timings:
        """Time functions in turn on the device and report progress under this title."""
        timer, on_repeat = Timer.for_device(self.device), self.progress_of(title)
        return timer.interleave(functions, repeats, warmups=warmups, on_repeat=on_repeat)


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
    """

    SUMMARY: str
    WORKLOADS: tuple[str, ...]

    def default_workloads(self, device: torch.device) -> tuple[str, ...]:
        """The workloads to measure on a device if none are given; none if it cannot run there."""
        ...

    def measure(self, options: BenchOptions) -> Iterator[BenchResult]:
        """Measure the workloads of the options, one after the other."""
        ...
