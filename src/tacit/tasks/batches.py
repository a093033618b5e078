"""The data of gradients: where clients' samples come from, and loaders of their batches.

A source (`FullBatchSource`, `MiniBatchSource` or a `Stream`) describes the data of all clients:
their number, the steps per epoch of the average client, and the numbers in the largest batch of one
client. `loader(ids, positions, seed, device)` makes the loader of hosted clients: their ids [n] and
the seed key what is drawn, and their data are at the positions [n] of the source.

A loader yields, for a batch number, chunks of clients with their arrays stacked [k, ...], so that
one batched pass handles a chunk. A batch is a pure function of the seed, the client and the number.
The thread that processes a chunk also assembles its arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from tacit.core.devices import to_device
from tacit.core.randomness import (
    TILE,
    concatenated_ranges,
    derive_key,
    permutations,
    same_size_permutations,
)
from tacit.tasks.parts import Part, Parts
from tacit.tasks.poisson import PoissonSampler
from tacit.tasks.sample_draws import NO_DRAWS, SampleDraws, client_keys, keyed_parts

Device = torch.device | str
# A number of clients → the ranges of clients to process together.
Split = Callable[[int], Sequence[slice]]
# Rows of hosted clients, and a function that returns their arrays stacked along a new first
# dimension.
Chunk = tuple[slice | Tensor, Callable[[], Part]]


class BatchLoader(Protocol):
    """Batches of the hosted clients."""

    def chunks(self, number: int, split: Split) -> Iterator[Chunk]:
        """Batch `number` of all hosted clients, in the chunks that `split` returns."""
        ...


def gather(arrays: Part, index: slice | Tensor) -> Part:
    """The entries at `index` of each array."""
    if isinstance(index, slice) or index.device.type != "cpu":
        return tuple(array[index] for array in arrays)
    # On a CPU this takes two thirds of the time of array[index].
    flat, shape = index.flatten(), index.shape
    return tuple(array.index_select(0, flat).view(*shape, *array.shape[1:]) for array in arrays)


def one_chunk(count: int) -> list[slice]:
    """The split that keeps all clients together."""
    return [slice(0, count)]


@dataclass(frozen=True, eq=False)
class FullBatchSource:
    """Every gradient sees all of its client's part."""

    parts: Sequence[Part]
    draws: SampleDraws = NO_DRAWS
    steps_per_epoch: int = 1

    @property
    def clients(self) -> int:
        return len(self.parts)

    @property
    def batch_numel(self) -> int:
        return max(sum(array.numel() for array in part) for part in self.parts)

    def loader(self, ids: Tensor, positions: Tensor, seed: int, device: Device) -> BatchLoader:
        parts = [self.parts[i] for i in positions.tolist()]
        if self.draws.needed:
            sizes = [len(part[0]) for part in parts]
            keys = torch.split(client_keys(ids.cpu(), sizes, seed), sizes)
            parts = [(*part, own) for part, own in zip(parts, keys, strict=True)]
        return FullBatchLoader(parts, device, self.draws)


class FullBatchLoader:
    """Loads whole parts; clients whose arrays have the same shapes share chunks.

    If anything is drawn for the samples, the last array of each part has their keys.
    """

    def __init__(
        self, parts: Sequence[Part], device: Device, draws: SampleDraws = NO_DRAWS
    ) -> None:
        self.draws, self._device = draws, torch.device(device)
        by_shape: dict[tuple[torch.Size, ...], list[int]] = {}
        for row, part in enumerate(parts):
            by_shape.setdefault(tuple(array.shape for array in part), []).append(row)
        self._groups: list[tuple[Tensor, Part]] = []
        for rows in by_shape.values():
            columns = zip(*(parts[row] for row in rows), strict=True)
            arrays = tuple(torch.stack(column).to(device) for column in columns)
            self._groups.append((torch.tensor(rows, device=device), arrays))

    def chunks(self, number: int | Tensor, split: Split) -> Iterator[Chunk]:
        single_group = len(self._groups) == 1
        for rows, arrays in self._groups:
            for chunk in split(len(rows)):
                load = partial(self._load, arrays, chunk, number)
                yield (chunk if single_group else rows[chunk]), load

    def batches(self, number: int) -> Tensor | None:
        """The number of a batch [1] on the device; None if all batches are the same."""
        return torch.full((1,), number, device=self._device) if self.draws.needed else None

    def _load(self, arrays: Part, chunk: slice, number: int | Tensor) -> Part:
        some = gather(arrays, chunk)
        return self.draws.of(some[:-1], some[-1], number) if self.draws.needed else some


@dataclass(frozen=True, eq=False)
class MiniBatchSource:
    """Every gradient sees a mini-batch of its client's part."""

    parts: Parts
    batch_size: int
    draws: SampleDraws = NO_DRAWS

    @property
    def clients(self) -> int:
        return self.parts.clients

    @property
    def steps_per_epoch(self) -> int:
        return max(1, int(self.parts.sizes.sum()) // self.clients // self.batch_size)

    @property
    def batch_numel(self) -> int:
        return self.batch_size * sum(array[0].numel() for array in self.parts.arrays)

    def loader(self, ids: Tensor, positions: Tensor, seed: int, device: Device) -> BatchLoader:
        return MiniBatchLoader(self, ids, positions, seed, device)


class MiniBatchLoader:
    """Loads keyed mini-batches: each client's data in a new order every epoch, cut into batches.

    With b = ⌊samples/batch⌋ batches per epoch, batch k of a client is slot k mod b of epoch ⌊k/b⌋.
    The samples beyond the last full batch of an epoch are skipped, different ones in each epoch.
    """

    def __init__(
        self, source: MiniBatchSource, ids: Tensor, positions: Tensor, seed: int, device: Device
    ) -> None:
        parts, positions, self.draws = source.parts, positions.cpu(), source.draws
        if self.draws.needed:
            parts = keyed_parts(parts, ids.cpu(), positions, seed)
        self._arrays = tuple(array.to(device) for array in parts.arrays)
        self._order = parts.order.to(device)
        self._first = parts.offsets[positions]
        self._sizes = parts.sizes[positions]
        self._ids = ids.cpu()
        self._device = self._order.device
        self._batch = source.batch_size
        self._key = derive_key(seed, "batches")
        self.poisson = PoissonSampler.of(parts, ids, positions)
        self._slots = self._sizes // self._batch
        # Cache of the batches of each client's current epoch, client after client.
        self._epoch = torch.full_like(self._sizes, -1)
        self._begin = self._slots.cumsum(0) - self._slots
        self._batches = torch.empty(
            int(self._slots.sum()), self._batch, dtype=torch.int64, device=self._device
        )
        # If all clients have the same number of samples: batches per epoch, and the common epoch.
        self._equal_slots = int(self._slots[0]) if len(set(self._sizes.tolist())) == 1 else None
        self._common_epoch = -1
        self._device_ids, self._device_first = self._ids.to(device), self._first.to(device)[:, None]
        self._device_begin, self._device_slots = self._begin.to(device), self._slots.to(device)

    def indices(self, number: int) -> Tensor:
        """Samples of the shared arrays in batch `number` of each hosted client: [n, batch].

        Does not synchronize with a GPU.
        """
        if self._equal_slots is not None:
            epoch, slot = divmod(number, self._equal_slots)
            if epoch != self._common_epoch:
                self._shuffle_equal(epoch)
                self._common_epoch = epoch
            return self._batches.view(-1, self._equal_slots, self._batch)[:, slot]
        epochs = number // self._slots
        (stale,) = torch.where(epochs != self._epoch)
        if len(stale):
            self._shuffle(stale, epochs[stale])
            self._epoch = epochs
        return self._batches[self._device_begin + number % self._device_slots]

    def batches(self, number: int) -> Tensor:
        """Batch `number` of each hosted client as one tensor [n, …], which `load_batches` takes.

        It is the indices, and the number in a last column if anything is drawn for the samples.
        """
        index = self.indices(number)
        return functional.pad(index, (0, 1), value=number) if self.draws.needed else index

    def load_batches(self, batches: Tensor) -> Part:
        """The arrays [k, batch, ...] of some rows of `batches`."""
        if not self.draws.needed:
            return gather(self._arrays, batches)
        return self.load(batches[:, :-1], batches[:, -1:])

    def load(self, index: slice | Tensor, number: int | Tensor) -> Part:
        """The samples at these indices [..., B] of the shared arrays, for batch `number`."""
        some = gather(self._arrays, index)
        return self.draws.of(some[:-1], some[-1], number) if self.draws.needed else some

    def chunks(self, number: int, split: Split) -> Iterator[Chunk]:
        batches = self.batches(number)
        for chunk in split(len(batches)):
            yield chunk, partial(self.load_batches, batches[chunk])

    def _shuffle_equal(self, epoch: int) -> None:
        """Cache an epoch's batches of all clients, which have the same number of samples."""
        size, slots = int(self._sizes[0]), int(self._slots[0])
        step = max(1, TILE // size)
        for rows in (slice(low, low + step) for low in range(0, len(self._ids), step)):
            order = same_size_permutations(self._key, epoch, self._device_ids[rows], size)
            used = order[:, : slots * self._batch]
            batches = self._order[self._device_first[rows] + used].view(-1, self._batch)
            self._batches[rows.start * slots : rows.start * slots + len(batches)] = batches

    def _shuffle(self, clients: Tensor, epochs: Tensor) -> None:
        """Cache the batches of an epoch of each of these clients."""
        sizes, slots = self._sizes[clients], self._slots[clients]
        order = permutations(self._key, epochs, self._ids[clients], sizes, self._device)
        first = sizes.cumsum(0) - sizes
        # The rest of an epoch does not fill a batch.
        used = concatenated_ranges(first, slots * self._batch)
        own = torch.repeat_interleave(self._first[clients], slots * self._batch)
        rows = concatenated_ranges(self._begin[clients], slots)
        used, own, rows = (to_device(index, self._device) for index in (used, own, rows))
        self._batches[rows] = self._order[own + order[used]].view(-1, self._batch)
