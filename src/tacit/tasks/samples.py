"""Samples as arrays: those of a map-style Dataset, stacked, and what is no array of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.core.errors import Misuse, first_line
from tacit.tasks.criteria import IGNORED


def owner_name(client: int) -> str:
    """Whose data these are, for messages; −1: the test set's."""
    return "The test set" if client < 0 else f"The part of client {client}"


def no_samples(client: int) -> Misuse:
    """The error for data without samples."""
    owner = "The test set" if client < 0 else f"Client {client}"
    return Misuse(f"{owner} has no samples.", "Give every client at least one sample.")


def as_tensor(values: Any, owner: str) -> Tensor:
    """Numbers as a dense tensor; raises Misuse if they are none."""
    try:
        array = torch.as_tensor(values)
    # torch raises several kinds.
    except (TypeError, ValueError, RuntimeError) as problem:
        raise Misuse(
            f"{owner} holds a {type(values).__name__} that is no array: {first_line(problem)}.",
            "Give tensors or numpy arrays of numbers, all samples of one shape; images become "
            "tensors by a transform of their Dataset.",
        ) from problem
    if (kind := _special_kind(array)) is not None:
        raise Misuse(
            f"{owner} holds a {kind} tensor.",
            "Give dense tensors of numbers: to_dense() of sparse ones, dequantize() of quantized "
            "ones, and nested ones padded to one shape.",
        )
    return array


def read_dataset(dataset: Any, client: int) -> Any:
    """The samples of a map-style Dataset as arrays, in the structure of one sample."""
    owner = owner_name(client)
    samples = [_sample(dataset, k, owner) for k in range(len(dataset))]
    if not samples:
        raise no_samples(client)
    samples = [x if isinstance(x, tuple | list | Mapping) else (x,) for x in samples]
    _check_alike(list(map(_form, samples)), owner)
    if isinstance(samples[0], Mapping):
        return _stacked(samples, owner)
    return tuple(_stacked(column, owner) for column in zip(*samples, strict=True))


def is_structured(inputs: Any) -> bool:
    """Whether inputs are several arrays; a list of numbers is one array."""
    if isinstance(inputs, Mapping):
        return True
    several = isinstance(inputs, tuple | list) and bool(inputs)
    return several and all(isinstance(x, Tensor | np.ndarray) for x in inputs)


def _sample(dataset: Any, k: int, owner: str) -> Any:
    try:
        return dataset[k]
    except Exception as error:  # users' datasets raise many kinds
        raise Misuse(
            f"{owner} fails at sample {k}: {type(error).__name__}: {first_line(error)}.",
            "Make its __getitem__ return the inputs and targets of every sample below its length.",
        ) from error


def _stacked(values: Sequence[Any], owner: str) -> Any:
    """One array, or as many as each value has."""
    first = values[0]
    _check_alike([_form(x) if is_structured(x) else "one entry" for x in values], owner)
    if isinstance(first, Mapping):
        return {name: _stacked([value[name] for value in values], owner) for name in first}
    if is_structured(first):
        return tuple(_stacked(column, owner) for column in zip(*values, strict=True))
    arrays = [as_tensor(value, owner) for value in values]
    shapes = sorted({tuple(array.shape) for array in arrays})
    if len(shapes) > 1:
        raise Misuse(
            f"{owner} has samples of different shapes, such as {shapes[0]} and {shapes[-1]}.",
            f"Pad them to one shape; cross-entropy ignores targets of {IGNORED}.",
        )
    return torch.stack(arrays)


def _form(value: Any) -> str:
    """What a sample, or the inputs of one, consists of."""
    if isinstance(value, Mapping):
        return f"the keys {', '.join(sorted(map(repr, value)))}"
    if isinstance(value, tuple | list) and len(value) != 1:
        return f"{len(value)} entries"
    return "one entry"


def _check_alike(forms: Sequence[str], owner: str) -> None:
    for k, form in enumerate(forms):
        if form != forms[0]:
            raise Misuse(
                f"{owner} has {form} in sample {k}, but {forms[0]} in sample 0.",
                "Return the same number of entries, or the same keys, for every sample.",
            )


def _special_kind(array: Tensor) -> str | None:
    kinds = {
        "nested": array.is_nested,
        "quantized": array.is_quantized,
        "meta": array.is_meta,
        "sparse": array.layout is not torch.strided,
    }
    return next((kind for kind, applies in kinds.items() if applies), None)
