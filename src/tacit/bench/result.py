"""What a bench is asked for and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch

from tacit.bench.stopwatch import Quartiles, Turns

Progress = Callable[[str, int, int], None]  # what is being measured, turns done, of how many
Better = Literal["lower", "higher"]


def say_nothing(what: str, done: int, of: int) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True)
class Asked:
    """What to measure, and how thoroughly."""

    workloads: tuple[str, ...]
    device: torch.device
    repeats: int | None = None  # as many as the bench thinks fit
    quick: bool = False
    progress: Progress = say_nothing

    def turns_of(self, what: str) -> Turns:
        """Who is told how far the measurement of `what` is."""
        return lambda done, of: self.progress(what, done, of)


@dataclass(frozen=True)
class Result:
    """A ratio of two things measured in turns in one run, with its quartiles."""

    bench: str
    workload: str
    ratio: Quartiles
    ours_seconds: float | None  # medians
    limit_seconds: float | None
    unit: str  # what takes those seconds
    repeats: int
    meaning: str  # of the ratio
    better: Better = "lower"
    details: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON, details last."""
        return {
            "bench": self.bench,
            "workload": self.workload,
            "ratio": self.ratio.median,
            "low": self.ratio.low,
            "high": self.ratio.high,
            "better": self.better,
            "ours_seconds": self.ours_seconds,
            "limit_seconds": self.limit_seconds,
            "unit": self.unit,
            "repeats": self.repeats,
            "meaning": self.meaning,
            **self.details,
        }


class Bench(Protocol):
    """A module of this package that measures something."""

    SUMMARY: str  # what is compared with what, in a line
    WORKLOADS: tuple[str, ...]  # all that can be measured

    def offered(self, device: torch.device) -> tuple[str, ...]:
        """The workloads that are measured on a device unless others are asked for."""
        ...

    def measure(self, asked: Asked) -> Iterator[Result]:
        """Measure the workloads asked for, one after the other."""
        ...
