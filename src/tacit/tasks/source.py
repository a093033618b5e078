"""Where data come from: mini-batches of the clients' parts, whole parts, or a stream that never repeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tacit.tasks.feed import Feed, MiniBatches, WholeParts
from tacit.tasks.parts import Part, Parts


class SampleSource(Protocol):
    """The data of all clients."""

    @property
    def clients(self) -> int:
        """Number of clients N."""
        ...

    @property
    def steps_per_epoch(self) -> int:
        """Iterations in which the average client sees its data once; 1 where each gradient sees all, or new ones."""
        ...

    @property
    def numbers(self) -> int:
        """How many numbers the gradient of one client sees, at most."""
        ...

    def feed(self, ids: Tensor, places: Tensor, seed: int, device: torch.device | str) -> Feed:
        """The data of the clients `ids`, which are at `places` in this source."""
        ...


@dataclass(frozen=True, eq=False)
class SampledParts:
    """Every gradient sees a mini-batch of its client's part."""

    parts: Parts
    batch_size: int

    @property
    def clients(self) -> int:
        """Number of clients N."""
        return self.parts.clients

    @property
    def steps_per_epoch(self) -> int:
        """How often the average client fills a batch."""
        return max(1, int(self.parts.sizes.sum()) // self.clients // self.batch_size)

    @property
    def numbers(self) -> int:
        """Those of one batch."""
        return self.batch_size * sum(array[0].numel() for array in self.parts.arrays)

    def feed(self, ids: Tensor, places: Tensor, seed: int, device: torch.device | str) -> Feed:
        """Keyed batches."""
        return MiniBatches(self.parts, places, ids, self.batch_size, seed, device)


@dataclass(frozen=True, eq=False)
class FullParts:
    """Every gradient sees all of its client's part."""

    parts: Sequence[Part]

    @property
    def clients(self) -> int:
        """Number of clients N."""
        return len(self.parts)

    @property
    def steps_per_epoch(self) -> int:
        """1: each gradient sees everything."""
        return 1

    @property
    def numbers(self) -> int:
        """Those of the largest part."""
        return max(sum(array.numel() for array in part) for part in self.parts)

    def feed(self, ids: Tensor, places: Tensor, seed: int, device: torch.device | str) -> Feed:
        """The parts themselves."""
        return WholeParts([self.parts[i] for i in places.tolist()], device)


def source_of(parts: Parts | Sequence[Part] | SampleSource, batch_size: int | None) -> SampleSource:
    """The source that a task's `parts` mean; one that is a source already, such as a stream, is itself."""
    if isinstance(parts, Parts):
        assert batch_size is not None
        return SampledParts(parts, batch_size)
    return FullParts(parts) if isinstance(parts, Sequence) else parts
