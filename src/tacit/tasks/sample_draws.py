"""What a gradient draws for each of its samples: changes of its image, and keys for dropout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.core.sample_keys import fold, sample_keys
from tacit.data.augmentation import Augment
from tacit.tasks.parts import Part, Parts


@dataclass(frozen=True)
class SampleDraws:
    """What is drawn for each sample of a batch, a function of (seed, client, sample, batch).

    Attributes:
        augment: Changes the images, which are the first array.
        keys: Whether the loss takes a key per sample, int64 [B], after its other arrays.
    """

    augment: Augment | None = None
    keys: bool = False

    @property
    def needed(self) -> bool:
        """Whether anything is drawn."""
        return self.keys or self.augment is not None

    def of(self, arrays: Part, keys: Tensor, number: int | Tensor) -> Part:
        """The arrays of a batch as the loss takes them.

        Args:
            arrays: Samples [..., B, ...].
            keys: Their keys for all batches, [..., B].
            number: The number of the batch, or of each batch [..., 1].
        """
        keys = fold(keys, number)
        if self.augment is not None:
            images, *others = arrays
            arrays = (self.augment(images, keys), *others)
        return (*arrays, keys) if self.keys else arrays


NO_DRAWS = SampleDraws()


def keyed_parts(parts: Parts, ids: Tensor, positions: Tensor, seed: int) -> Parts:
    """Parts with the samples' keys as a last array, for the clients at these positions.

    A sample in several places has a key in each, so those clients get copies of their samples.
    """
    # In the order of the parts, which copies keep.
    rank = positions.argsort()
    ids, positions = ids[rank], positions[rank]
    held = [parts.order[parts.offsets[i] : parts.offsets[i + 1]] for i in positions.tolist()]
    hosted = torch.cat(held)
    if len(torch.unique(hosted)) < len(hosted):
        arrays = tuple(array[hosted] for array in parts.arrays)
        offsets = torch.zeros_like(parts.offsets)
        offsets[positions + 1] = parts.sizes[positions]
        parts = Parts(arrays, torch.arange(len(hosted)), offsets.cumsum(0))
        hosted = parts.order
    keys = torch.zeros(len(parts.arrays[0]), dtype=torch.int64)
    keys[hosted] = client_keys(ids, [len(own) for own in held], seed)
    return Parts((*parts.arrays, keys), parts.order, parts.offsets)


def client_keys(ids: Tensor, sizes: Sequence[int], seed: int) -> Tensor:
    """The keys of the samples of these clients, client after client."""
    pairs = zip(ids.tolist(), sizes, strict=True)
    return torch.cat([sample_keys(seed, client, size) for client, size in pairs])
