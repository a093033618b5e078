"""Data that never repeat: each batch is drawn on demand from keyed random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from tacit.core.randomness import derive_key, uniform, words
from tacit.tasks.batches import BatchLoader, Chunk, Device, Split
from tacit.tasks.parts import Part

PREFETCH = 1 << 14  # numbers drawn in one call


@dataclass(frozen=True, eq=False)
class Stream:
    """Batches made of each client's constants and of numbers keyed by (seed, client, number).

    `make(number, normals, *constants)` returns the arrays [k, ...] of k clients from their
    standard normal numbers [k, width] and their rows of the constants.
    """

    constants: Part  # arrays [N, ...], a row per client
    width: int  # normal numbers in one batch of one client; with 0 nothing is random
    make: Callable[..., Part]
    steps_per_epoch: int = 1

    @property
    def clients(self) -> int:
        return len(self.constants[0])

    @property
    def batch_numel(self) -> int:
        return self.width + sum(array[0].numel() for array in self.constants)

    def loader(self, ids: Tensor, positions: Tensor, seed: int, device: Device) -> BatchLoader:
        return StreamLoader(self, ids, positions, seed, device)


class StreamLoader:
    """Draws the batches of hosted clients."""

    def __init__(
        self, stream: Stream, ids: Tensor, positions: Tensor, seed: int, device: Device
    ) -> None:
        self._make = stream.make
        self._constants = tuple(
            array[positions.to(array.device)].to(device) for array in stream.constants
        )
        self._width = stream.width
        self._ids = ids.to(device)
        self._key = derive_key(seed, "stream")
        # Cache of the numbers drawn in one call for some clients and consecutive batches.
        self._cached: tuple[int, slice] | None = None
        self._drawn = torch.empty(0)

    def chunks(self, number: int, split: Split) -> Iterator[Chunk]:
        # Draws in this thread, not in the one that processes the chunk: there is one cache.
        for rows in split(len(self._ids)):
            constants = (array[rows] for array in self._constants)
            made = self._make(number, self._normals(number, rows), *constants)
            yield rows, partial(tuple, made)

    def _normals(self, number: int, rows: slice) -> Tensor:
        """The numbers [k, width] of one batch, drawn with those of adjacent batches if few."""
        ids = self._ids[rows]
        batches = max(1, PREFETCH // (len(ids) * max(1, self._width)))
        block, within = divmod(number, batches)
        if (block, rows) != self._cached:
            numbers = torch.arange(block * batches, (block + 1) * batches, device=ids.device)
            ticks = numbers.repeat_interleave(len(ids))
            drawn = normals(self._key, ticks, ids.repeat(batches), self._width)
            self._cached, self._drawn = (block, rows), drawn.view(batches, len(ids), self._width)
        return self._drawn[within]


def uniforms(key: int, tick: Tensor | int, ids: Tensor, width: int) -> Tensor:
    """Uniform numbers in (0, 1), [k, width] in float64; a row depends on key, tick and id only."""
    if width == 0:
        return torch.empty(len(ids), 0, dtype=torch.float64, device=ids.device)
    drawn = words(key, tick, ids, torch.zeros_like(ids), range(width))
    return uniform(drawn)


def normals(key: int, tick: Tensor | int, ids: Tensor, width: int) -> Tensor:
    """Standard normal numbers [k, width], keyed like `uniforms`."""
    standard: Tensor = torch.special.ndtri(uniforms(key, tick, ids, width))
    return standard
