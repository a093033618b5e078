"""Clients' data as people have them: pairs, several or named inputs, and Datasets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.core.errors import Misuse
from tacit.tasks.parts import DatasetPart, Part, as_part
from tacit.tasks.samples import is_structured, owner_name, read_dataset

LOADERS = torch.utils.data.DataLoader, torch.utils.data.IterableDataset
# The key of the targets where a part or a sample is a dictionary.
TARGET_NAMES = ("labels", "label")


@dataclass(frozen=True)
class InputLayout:
    """Which arrays of a part are inputs of the model: the first `count` of them.

    The model takes them by `names`, or by position if there are none.
    """

    count: int = 1
    names: tuple[str, ...] = ()

    def split(self, arrays: Sequence[Tensor]) -> tuple[Part, Part]:
        """The inputs, and the other arrays."""
        return tuple(arrays[: self.count]), tuple(arrays[self.count :])

    def arguments(self, inputs: Part) -> tuple[Part, dict[str, Tensor]]:
        """What to call the model with: positional arguments and keywords."""
        return ((), dict(zip(self.names, inputs, strict=True))) if self.names else (inputs, {})


ONE_INPUT = InputLayout()


def read_part(part: Any, client: int) -> tuple[Part, InputLayout]:
    """One client's arrays, inputs first, and which of them are inputs.

    Args:
        part: (inputs, targets), where inputs are an array, a tuple of arrays, or a dictionary of
            arrays by name; a dictionary with inputs and "labels"; or a map-style Dataset of such
            samples.
        client: Which client it is, for messages; −1: the test set.

    Raises:
        Misuse: If it is none of these.
    """
    owner = owner_name(client)
    if isinstance(part, Mapping):
        return _read_mapping(part, client, owner)
    if isinstance(part, tuple | list) and part and is_structured(part[0]):
        inputs, others = part[0], part[1:]
        names = tuple(inputs) if isinstance(inputs, Mapping) else ()
        arrays = list(inputs.values()) if isinstance(inputs, Mapping) else list(inputs)
        return as_part([*arrays, *others], client), InputLayout(len(arrays), names)
    if isinstance(part, LOADERS):
        raise Misuse(
            f"{owner} is a {type(part).__name__}, but batches are drawn from keys.",
            "Give a map-style Dataset, such as the `dataset` of a DataLoader, and set batch_size.",
        )
    if hasattr(part, "iloc"):
        raise Misuse(
            f"{owner} is a {type(part).__name__}.",
            "Make a dataset of all tables: tacit.data.from_tables({name: table, …}, label=…).",
        )
    is_dataset = hasattr(part, "__getitem__") and hasattr(part, "__len__")
    if is_dataset and not isinstance(part, tuple | list | Tensor | np.ndarray):
        read, layout = read_part(read_dataset(part, client), client)
        return DatasetPart.of(read, part), layout
    return as_part(part, client), ONE_INPUT


def read_parts(parts: Iterable[Any]) -> tuple[list[Part], InputLayout]:
    """The arrays of all clients, which have the same layout."""
    one_part = (Mapping, Tensor, np.ndarray, *LOADERS)
    if isinstance(parts, one_part) or not isinstance(parts, Iterable):
        raise Misuse(
            f"parts is a {type(parts).__name__}.", "Give a list with one entry per client."
        )
    read = [read_part(part, client) for client, part in enumerate(parts)]
    if not read:
        raise Misuse("There are no clients: `parts` is empty.", "Give one part per client.")
    if len({(len(arrays), layout) for arrays, layout in read}) != 1:
        raise Misuse(
            "Clients have different numbers of arrays, or inputs of different names.",
            "Give the same kinds of arrays to every client.",
        )
    return [arrays for arrays, _ in read], read[0][1]


def is_per_client(test: Any) -> bool:
    """Whether held-out data are a list of one pair per client, not one pair for all."""
    return isinstance(test, tuple | list) and bool(test) and all(map(_is_part, test))


def _is_part(value: Any) -> bool:
    """Whether this is the data of one client, not an array, nor the inputs or the targets."""
    if isinstance(value, tuple | list):
        return len(value) == 2 and isinstance(value[1], Tensor | np.ndarray)
    return not isinstance(value, Tensor | np.ndarray) and hasattr(value, "__getitem__")


def _read_mapping(part: Mapping[str, Any], client: int, owner: str) -> tuple[Part, InputLayout]:
    target = next((name for name in TARGET_NAMES if name in part), None)
    if target is None or len(part) < 2:
        raise Misuse(
            f"{owner} has the keys {', '.join(map(repr, part))}.",
            'Give inputs by name and the targets as "labels", or a pair (inputs, targets).',
        )
    names = tuple(name for name in part if name != target)
    arrays = as_part([part[name] for name in (*names, target)], client)
    return arrays, InputLayout(len(names), names)
