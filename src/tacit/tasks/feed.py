"""What data a gradient sees: the whole part of each client, or a keyed mini-batch of it.

A feed yields, for hosted clients and a batch number, groups of rows with their arrays stacked [k, ...], so that
a group can be handled in one batched pass. It is a pure function of the seed, the client and the number. Arrays
are put together when they are asked for: by the thread that needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from tacit.errors import Misuse
from tacit.randomness import key_of, permutations, spans
from tacit.tasks.parts import Part, Parts

Cut = Callable[[int], Sequence[slice]]  # a number of clients → ranges of them to take together
Piece = tuple[
    slice | Tensor, Callable[[], Part]
]  # rows, and their arrays stacked along a new first dimension


class Feed(Protocol):
    """Source of the data of hosted clients."""

    def pieces(self, number: int, cut: Cut) -> Iterator[Piece]:
        """Batch `number` of all hosted clients, in pieces as `cut` says."""
        ...


def together(count: int) -> list[slice]:
    """All clients in one piece."""
    return [slice(0, count)]


class WholeParts:
    """Every gradient sees all of its client's data; clients with arrays of the same shapes go together."""

    def __init__(self, parts: Sequence[Part], device: torch.device | str) -> None:
        alike: dict[tuple[torch.Size, ...], list[int]] = {}
        for row, part in enumerate(parts):
            alike.setdefault(tuple(array.shape for array in part), []).append(row)
        self._groups: list[tuple[Tensor, Part]] = []
        for rows in alike.values():
            columns = zip(*(parts[row] for row in rows), strict=True)
            arrays = tuple(torch.stack(column).to(device) for column in columns)
            self._groups.append((torch.tensor(rows, device=device), arrays))

    def pieces(self, number: int, cut: Cut) -> Iterator[Piece]:
        """Groups of clients whose arrays have the same shapes."""
        everyone = len(self._groups) == 1
        for rows, arrays in self._groups:
            for piece in cut(len(rows)):
                yield (piece if everyone else rows[piece]), partial(_at, arrays, piece)


def refuse_small_parts(parts: Parts, batch_size: int) -> None:
    """Refuse clients that cannot fill one batch."""
    if int(parts.sizes.min()) < batch_size:
        client = int(parts.sizes.argmin())
        raise Misuse(
            f"Client {client} has {int(parts.sizes[client])} samples, fewer than one batch of {batch_size}.",
            "Lower batch_size or give that client more data (a partition's `minimum`).",
        )


class MiniBatches:
    """Batch `number` of each client: its data in a new keyed order every epoch, cut into batches of one size.

    With b = ⌊samples/batch⌋ batches per epoch, batch k of a client is slot k mod b of epoch ⌊k/b⌋; the remainder of
    an epoch is left out, other samples each time.
    """

    def __init__(
        self,
        parts: Parts,
        places: Tensor,
        ids: Tensor,
        batch_size: int,
        seed: int,
        device: torch.device | str,
    ) -> None:
        """Batches of the clients `ids`, whose data are at `places` in `parts`."""
        places = places.cpu()
        self._arrays = tuple(array.to(device) for array in parts.arrays)
        self._order = parts.order.to(device)
        self._first = parts.offsets[places].to(device)
        self._sizes = parts.sizes[places].to(device)
        self._ids = ids.to(device)
        self._batch = batch_size
        self._key = key_of(seed, "batches")
        self._slots = self._sizes // batch_size
        # A memo of the current epoch's order of each client, one after the other; it only saves work.
        self._epoch = torch.full_like(self._sizes, -1)
        self._begin = self._sizes.cumsum(0) - self._sizes
        self._shuffled = torch.empty(int(self._sizes.sum()), dtype=torch.int64, device=device)

    def indices(self, number: int) -> Tensor:
        """Which samples of the shared arrays are in batch `number` of each hosted client: [n, batch]."""
        epoch = number // self._slots
        (stale,) = torch.where(epoch != self._epoch)
        if len(stale):
            sizes = self._sizes[stale]
            order = permutations(self._key, epoch[stale], self._ids[stale], sizes)
            self._shuffled[spans(self._begin[stale], sizes)] = order
            self._epoch = epoch
        start = self._begin + (number % self._slots) * self._batch
        within = start[:, None] + torch.arange(self._batch, device=start.device)
        return self._order[self._first[:, None] + self._shuffled[within]]

    def pieces(self, number: int, cut: Cut) -> Iterator[Piece]:
        """The batches of all hosted clients."""
        index = self.indices(number)
        for piece in cut(len(index)):
            yield piece, partial(_at, self._arrays, index[piece])


def _at(arrays: Part, index: slice | Tensor) -> Part:
    return tuple(array[index] for array in arrays)
