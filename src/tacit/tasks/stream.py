"""Data that never repeat: every batch is drawn when it is asked for, by its key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from tacit.core.randomness import key_of, words
from tacit.tasks.feed import Cut, Feed, Piece
from tacit.tasks.parts import Part

AHEAD = 1 << 14  # numbers drawn together


@dataclass(frozen=True, eq=False)
class Stream:
    """Batch `number` of a client is made of its constants and of numbers keyed by (seed, client, number).

    `make(number, normals, *constants)` gives the arrays [k, ...] of k clients from their standard normal numbers
    [k, width] and their rows of the constants.
    """

    constants: Part  # arrays [N, ...], a row per client
    width: int  # normal numbers in one batch of one client; with 0 nothing is random
    make: Callable[..., Part]

    @property
    def clients(self) -> int:
        """Number of clients N."""
        return len(self.constants[0])

    @property
    def steps_per_epoch(self) -> int:
        """1: each gradient sees new data."""
        return 1

    @property
    def numbers(self) -> int:
        """What one batch is made of."""
        return self.width + sum(array[0].numel() for array in self.constants)

    def feed(self, ids: Tensor, places: Tensor, seed: int, device: torch.device | str) -> Feed:
        """Keyed batches, made of the constants at `places`."""
        return Drawn(self, ids, places, seed, device)


class Drawn:
    """The batches of hosted clients."""

    def __init__(
        self, stream: Stream, ids: Tensor, places: Tensor, seed: int, device: torch.device | str
    ) -> None:
        self._make = stream.make
        self._constants = tuple(
            array[places.to(array.device)].to(device) for array in stream.constants
        )
        self._width = stream.width
        self._ids = ids.to(device)
        self._key = key_of(seed, "stream")
        # A memo of what was drawn together for some clients and batches; it only saves work.
        self._known: tuple[int, slice] | None = None
        self._drawn = torch.empty(0)

    def pieces(self, number: int, cut: Cut) -> Iterator[Piece]:
        """The batches of all hosted clients, drawn as they are yielded: numbers ahead are kept in one place."""
        for rows in cut(len(self._ids)):
            constants = (array[rows] for array in self._constants)
            made = self._make(number, self._normals(number, rows), *constants)
            yield rows, partial(tuple, made)

    def _normals(self, number: int, rows: slice) -> Tensor:
        """The numbers [k, width] of one batch, drawn with those of the batches around it if they are few."""
        ids = self._ids[rows]
        together = max(1, AHEAD // (len(ids) * max(1, self._width)))
        block, within = divmod(number, together)
        if (block, rows) != self._known:
            batches = torch.arange(block * together, (block + 1) * together, device=ids.device)
            ticks = batches.repeat_interleave(len(ids))
            drawn = normals(self._key, ticks, ids.repeat(together), self._width)
            self._known, self._drawn = (block, rows), drawn.view(together, len(ids), self._width)
        return self._drawn[within]


def uniforms(key: int, tick: Tensor | int, ids: Tensor, width: int) -> Tensor:
    """Numbers between 0 and 1 [k, width] in double precision, row by row a pure function of key, tick and id."""
    if width == 0:
        return torch.empty(len(ids), 0, dtype=torch.float64, device=ids.device)
    drawn = words(key, tick, ids, torch.zeros_like(ids), range(width))
    # The middle of one of 2³² equal cells: never 0 or 1, so every quantile is finite.
    return drawn.to(torch.float64).add_(0.5).mul_(2.0**-32)


def normals(key: int, tick: Tensor | int, ids: Tensor, width: int) -> Tensor:
    """Standard normal numbers [k, width] likewise."""
    standard: Tensor = torch.special.ndtri(uniforms(key, tick, ids, width))
    return standard
