"""The clients' data: shared arrays, and the samples of them that each client owns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Subset

from tacit.core.errors import Misuse
from tacit.data.dataset import ClientPart
from tacit.tasks.samples import as_tensor, no_samples, owner_name, read_dataset

Part = tuple[Tensor, ...]
# More samples than a Dataset has.
LARGEST_DATASET = 1 << 40


@dataclass(frozen=True, eq=False)
class Parts:
    """Client i owns samples `order[offsets[i] : offsets[i+1]]` of each array [samples, ...].

    Attributes:
        arrays: The samples of all clients.
        order: Positions in the arrays, int64, client after client.
        offsets: Where each client's positions begin, int64 [N + 1].
        identities: A number for each sample of the arrays, the same for the same row of the data
            that they were taken from; None if the arrays are these data.
        is_traced: Whether it is known of all clients which rows of which data they hold.
    """

    arrays: Part
    order: Tensor
    offsets: Tensor
    identities: Tensor | None = None
    is_traced: bool = True

    @classmethod
    def split(cls, arrays: Sequence[Tensor], indices: Sequence[Any]) -> Parts:
        """Parts of shared arrays, in which client i owns samples `indices[i]`.

        Copies the indices, not the arrays.
        """
        rows = [torch.as_tensor(np.asarray(index), dtype=torch.int64) for index in indices]
        offsets = _offsets(rows)
        return cls(tuple(arrays), torch.cat(rows), offsets)

    @classmethod
    def concatenate(cls, parts: Sequence[Part]) -> Parts:
        """Parts given client by client, concatenated along their sample dimension.

        Those of `Split.parts`, of a torch Dataset and of its Subsets know the rows that they hold.
        Of other arrays only shared memory says that two clients hold the same sample; copies remain
        unnoticed.
        """
        for i, part in enumerate(parts):
            sizes = [len(array) if array.ndim else -1 for array in part]
            if len(set(sizes)) != 1 or sizes[0] < 0:
                raise Misuse(
                    f"The arrays of client {i} have {sizes} samples (-1: no sample dimension).",
                    "Give every client as many targets as inputs; only the loss of a vector, "
                    "without batch_size, takes arrays of different lengths.",
                )
        offsets = _offsets([part[0] for part in parts])
        for i, part in enumerate(parts):
            shapes, first = ([tuple(array.shape[1:]) for array in p] for p in (part, parts[0]))
            if shapes != first:
                raise Misuse(
                    f"The samples of client {i} have the shapes {_listed(shapes)}, those of "
                    f"client 0 {_listed(first)}.",
                    "Give every client's samples one shape: the same features, and targets [n] or "
                    "[n, 1] everywhere.",
                )
        arrays = tuple(_joined(column) for column in zip(*parts, strict=True))
        traced = len(parts) == 1 or all(isinstance(part, ClientPart) for part in parts)
        identities = torch.from_numpy(np.concatenate(_identities(parts)))
        return cls(arrays, torch.arange(len(arrays[0])), offsets, identities, traced)

    @property
    def clients(self) -> int:
        """Number of clients N."""
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Tensor:
        """Number of samples of each client, [N]."""
        return self.offsets.diff()

    @property
    def has_repeats(self) -> bool:
        """Whether a sample is in several places, of one client or of several."""
        held = self.order if self.identities is None else self.identities[self.order]
        return len(torch.unique(held)) < len(held)

    def of(self, client: int) -> Part:
        """The arrays of one client."""
        index = self.order[self.offsets[client] : self.offsets[client + 1]]
        return tuple(array[index] for array in self.arrays)


class DatasetPart(tuple[Tensor, ...]):
    """One client's arrays, which know the samples of the Dataset that they were read from.

    Attributes:
        dataset: The Dataset, of which a `Subset` takes some samples.
        rows: The client's samples of it, int64 [k].
    """

    dataset: Any
    rows: NDArray[np.int64]

    @classmethod
    def of(cls, arrays: Part, given: Any) -> DatasetPart:
        """The arrays of what was given, a Dataset or a Subset, perhaps of a Subset."""
        part, rows = cls(arrays), np.arange(len(given))
        # Not further than a class that may have other samples than the Dataset that it holds.
        while type(given) is Subset and (indices := _whole_numbers(given.indices)) is not None:
            given, rows = given.dataset, indices[rows]
            if hasattr(given, "__len__"):
                rows = np.where(rows < 0, rows + len(given), rows)
        part.dataset, part.rows = given, rows
        return part


def as_part(part: Any, client: int) -> Part:
    """One client's data as tensors, from a tensor, a tuple of tensors or a map-style Dataset."""
    if isinstance(part, ClientPart | DatasetPart):
        return part
    if isinstance(part, Tensor | np.ndarray):
        return (as_tensor(part, owner_name(client)),)
    if isinstance(part, tuple | list):
        if not part:
            raise Misuse(
                f"Client {client} has an empty part.", "Give every client at least one array."
            )
        return tuple(as_tensor(array, owner_name(client)) for array in part)
    is_dataset = hasattr(part, "__getitem__") and hasattr(part, "__len__")
    if is_dataset and not isinstance(part, Mapping):
        return DatasetPart.of(as_part(read_dataset(part, client), client), part)
    raise Misuse(
        f"The part of client {client} is a {type(part).__name__}.",
        "Give a tensor, a tuple of tensors (such as (x, y)), or a torch Dataset per client.",
    )


def as_parts(parts: Sequence[Any]) -> list[Part]:
    """The data of all clients as tensors, the same number of arrays for each."""
    given: Any = parts
    if not isinstance(given, Iterable):
        problem = f"parts is a {type(given).__name__}."
        raise Misuse(problem, "Give a list with one part per client.")
    held = [as_part(part, i) for i, part in enumerate(parts)]
    if not held:
        raise Misuse("There are no clients: `parts` is empty.", "Give one part per client.")
    if len({len(part) for part in held}) != 1:
        raise Misuse(
            "Clients have different numbers of arrays.",
            "Give the same kinds of arrays to every client.",
        )
    return held


def disclosure_of(parts: Sequence[Part]) -> str:
    """What clients told each other to prepare these parts, as far as the parts know it."""
    told = [part.disclosure for part in parts if isinstance(part, ClientPart) and part.disclosure]
    return "; ".join(dict.fromkeys(told))


def _identities(parts: Sequence[Part]) -> list[NDArray[np.int64]]:
    """A number for each sample of each client, the same for the same sample of the same data."""
    datasets: dict[int, int] = {}
    found = []
    for part in parts:
        if isinstance(part, DatasetPart):
            number = datasets.setdefault(id(part.dataset), len(datasets) + 1)
            # Below zero, where no address is.
            found.append(part.rows - number * LARGEST_DATASET)
        else:
            found.append(_addresses(part))
    return found


def _whole_numbers(indices: Any) -> NDArray[np.int64] | None:
    """Indices of samples; None if they are something else, such as names."""
    if isinstance(indices, Tensor):
        indices = indices.cpu()
    found = np.asarray(indices)
    return found.astype(np.int64) if found.ndim == 1 and found.dtype.kind in "iu" else None


def _addresses(part: Part) -> NDArray[np.int64]:
    """Where in memory each sample of a client begins, in the data that it was taken from.

    While all parts exist, so do these data: equal addresses are the same sample.
    """
    source, rows = part[0], np.arange(len(part[0]))
    if isinstance(part, ClientPart):
        source, rows = part.source, part.rows.numpy()
    return source.data_ptr() + rows * (source.stride(0) * source.element_size())


def _joined(arrays: Sequence[Tensor]) -> Tensor:
    # torch finds no common type of these and others.
    wide = torch.uint16, torch.uint32, torch.uint64
    if len({array.dtype for array in arrays}) > 1:
        arrays = [array.long() if array.dtype in wide else array for array in arrays]
    return torch.cat(list(arrays))


def _listed(shapes: Sequence[tuple[int, ...]]) -> str:
    return ", ".join(map(str, shapes))


def _offsets(owned: Sequence[Tensor]) -> Tensor:
    sizes = [len(samples) for samples in owned]
    if not sizes:
        raise Misuse("There are no clients: `parts` is empty.", "Give one part per client.")
    if 0 in sizes:
        raise no_samples(sizes.index(0))
    return torch.tensor([0, *np.cumsum(sizes)], dtype=torch.int64)
