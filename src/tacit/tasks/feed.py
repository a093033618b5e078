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

from tacit.core.errors import Misuse
from tacit.core.randomness import TILE, key_of, orders, permutations, spans
from tacit.core.transfer import sent
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


def gather(arrays: Part, index: slice | Tensor) -> Part:
    """The entries at `index` of each array."""
    return tuple(array[index] for array in arrays)


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
                yield (piece if everyone else rows[piece]), partial(gather, arrays, piece)


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
        self.arrays = tuple(array.to(device) for array in parts.arrays)
        self._order = parts.order.to(device)
        self._first = parts.offsets[places]
        self._sizes = parts.sizes[places]
        self._ids = ids.cpu()
        self._device = self._order.device
        self._batch = batch_size
        self._key = key_of(seed, "batches")
        self._slots = self._sizes // batch_size
        # A memo of the current epoch's batches of each client, one after the other; it only saves work.
        self._epoch = torch.full_like(self._sizes, -1)
        self._begin = self._slots.cumsum(0) - self._slots
        self._batches = torch.empty(
            int(self._slots.sum()), batch_size, dtype=torch.int64, device=self._device
        )
        # Where all have equally many samples: their batches per epoch, and the epoch that all are in.
        self._alike = int(self._slots[0]) if len(set(self._sizes.tolist())) == 1 else None
        self._common_epoch = -1
        # On the device: which clients these are and where their data begin; where their batches are, and how many.
        self._there = (self._ids.to(device), self._first.to(device)[:, None])
        self._cycle = (self._begin.to(device), self._slots.to(device))

    def indices(self, number: int) -> Tensor:
        """Which samples of the shared arrays are in batch `number` of each hosted client: [n, batch].

        A GPU is not waited for.
        """
        if self._alike is not None:
            epoch, slot = divmod(number, self._alike)
            if epoch != self._common_epoch:
                self._shuffle_alike(epoch)
                self._common_epoch = epoch
            return self._batches.view(-1, self._alike, self._batch)[:, slot]
        epochs = number // self._slots
        (stale,) = torch.where(epochs != self._epoch)
        if len(stale):
            self._shuffle(stale, epochs[stale])
            self._epoch = epochs
        begin, slots = self._cycle
        return self._batches[begin + number % slots]

    def _shuffle_alike(self, epoch: int) -> None:
        """Put the batches of an epoch of all clients, which have equally many samples, into the memo."""
        size, slots = int(self._sizes[0]), int(self._slots[0])
        ids, first = self._there
        step = max(1, TILE // size)
        for rows in (slice(low, low + step) for low in range(0, len(ids), step)):
            order = orders(self._key, epoch, ids[rows], size)[:, : slots * self._batch]
            batches = self._order[first[rows] + order].view(-1, self._batch)
            self._batches[rows.start * slots : rows.start * slots + len(batches)] = batches

    def _shuffle(self, clients: Tensor, epochs: Tensor) -> None:
        """Put the batches of an epoch of each of these clients into the memo."""
        sizes, slots = self._sizes[clients], self._slots[clients]
        order = permutations(self._key, epochs, self._ids[clients], sizes, self._device)
        first = sizes.cumsum(0) - sizes
        used = spans(first, slots * self._batch)  # the rest of an epoch fills no batch
        own = torch.repeat_interleave(self._first[clients], slots * self._batch)
        places = spans(self._begin[clients], slots)
        used, own, places = (sent(index, self._device) for index in (used, own, places))
        self._batches[places] = self._order[own + order[used]].view(-1, self._batch)

    def pieces(self, number: int, cut: Cut) -> Iterator[Piece]:
        """The batches of all hosted clients."""
        index = self.indices(number)
        for piece in cut(len(index)):
            yield piece, partial(gather, self.arrays, index[piece])
