"""Fits a client's arrays and a loss to a model: a trial on two samples says what does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tacit.core.errors import Misuse, first_line, prefix_errors
from tacit.data.augmentation import Augment
from tacit.tasks.criteria import (
    BinaryLoss,
    Criterion,
    StandardizedLoss,
    TokenLoss,
    check_targets,
    fitting_criterion,
)
from tacit.tasks.evaluation import TestSet
from tacit.tasks.flat import FlatModule, ModuleLoss
from tacit.tasks.inputs import ONE_INPUT, InputLayout, read_part
from tacit.tasks.parts import Part, Parts
from tacit.tasks.pure import thread_safe
from tacit.tasks.purity import check_repeatable


@dataclass(frozen=True)
class Fit:
    """A loss that fits a model's output, and the types that the arrays must have."""

    criterion: Criterion
    dtypes: tuple[torch.dtype, ...]

    def convert(self, arrays: Sequence[Tensor]) -> Part:
        """The arrays in these types; those that have them are not copied."""
        pairs = zip(arrays, self.dtypes, strict=False)
        return tuple(array.to(dtype) for array, dtype in pairs)


def fit(flat: FlatModule, arrays: Part, criterion: Criterion) -> Fit:
    """Try a model and its loss on two samples.

    Real numbers become those of the model, and whole numbers as targets int64. Whole numbers as
    inputs stay what they are if the model takes them, as embeddings do.

    Args:
        flat: The model.
        arrays: Inputs and targets of all clients.
        criterion: The loss of an output and targets.

    Raises:
        Misuse: If the model fails on the inputs or is not pure, or the loss on its output.
    """
    inputs, targets = flat.layout.split(arrays)
    types = [flat.dtype if array.is_floating_point() else array.dtype for array in inputs]
    output, types = _trial(flat, inputs, types)
    _check_samples_first(flat, inputs, types, output)
    flat.check(*_first_two(inputs, types))
    types += [flat.dtype if array.is_floating_point() else torch.int64 for array in targets]
    some = _first_two(targets, types[len(inputs) :])
    if len(some) == 1:
        criterion = fitting_criterion(criterion, output, some[0])
        check_targets(criterion, output, targets[0])
    _try_loss(criterion, output, some)
    if isinstance(criterion, TokenLoss | BinaryLoss | StandardizedLoss):
        criterion = replace(criterion, criterion=thread_safe(criterion.criterion))
    else:
        criterion = thread_safe(criterion)
    return Fit(criterion, tuple(types))


def held_out(flat: FlatModule, fitted: Fit, test: Any, held: Parts) -> TestSet:
    """Evaluation on held-out data, which must have the arrays of the clients' data."""
    arrays, layout = read_part(test, -1)
    if len(arrays) != layout.count + 1 or layout != flat.layout:
        raise Misuse(
            f"test holds {len(arrays)} array(s), {layout.count} of them inputs.",
            "Give held-out (inputs, targets), with inputs as the clients have them.",
        )
    for given, own in zip(arrays, held.arrays, strict=False):
        if given.shape[1:] != own.shape[1:] or len(given) != len(arrays[0]) or not len(given):
            raise Misuse(
                f"test holds an array of shape {tuple(given.shape)}, clients one of shape "
                f"{tuple(own.shape)}.",
                "Give as many inputs as targets, of the same shapes as the clients have.",
            )
    *inputs, targets = fitted.convert(arrays)
    return TestSet(flat, fitted.criterion, inputs[0], targets, tuple(inputs[1:]))


def held_out_per_client(
    flat: FlatModule, fitted: Fit, tests: Sequence[Any], held: Parts
) -> tuple[TestSet, list[tuple[Any, Tensor]]]:
    """Evaluation on what all clients held out, and the inputs and targets of each of them."""
    if len(tests) != held.clients:
        raise Misuse(
            f"test has {len(tests)} entries for {held.clients} clients.",
            "Give one pair (inputs, targets) for all clients, or one for each.",
        )
    own = []
    for client, test in enumerate(tests):
        with prefix_errors(f"Client {client}"):
            own.append(held_out(flat, fitted, test, held))
    x, y, *further = (
        torch.cat(column)
        for column in zip(*((one.x, one.y, *one.further) for one in own), strict=True)
    )
    several = bool(own[0].further)
    pairs = [((one.x, *one.further) if several else one.x, one.y) for one in own]
    return TestSet(flat, fitted.criterion, x, y, tuple(further)), pairs


def check_missing(loss: ModuleLoss, held: Parts) -> None:
    """Raise Misuse if the data have NaN that the loss cannot take."""
    for array in held.arrays:
        if not array.is_floating_point() or not bool(torch.isnan(array).any()):
            continue
        bad = torch.isnan(array).flatten(1).any(1) if array.ndim > 1 else torch.isnan(array)
        for client in range(held.clients):
            rows = held.order[held.offsets[client] : held.offsets[client + 1]]
            found = bad[rows].nonzero().flatten()
            if not len(found):
                continue
            sample = int(found[0])
            # A model may have a way to deal with missing values.
            arrays = (one[rows[sample]][None] for one in held.arrays)
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                value = loss(loss.flat.weights(), *arrays)
            if not bool(torch.isnan(value)):
                return
            raise Misuse(
                f"The data of client {client} have NaN in sample {sample}"
                f"{f' and {len(found) - 1} more' if len(found) > 1 else ''}.",
                "Fill in missing values, or remove these samples; tacit.data.from_tables does it.",
            )


def check_augment(augment: Augment, held: Parts, layout: InputLayout) -> None:
    """Raise Misuse if the inputs cannot be augmented."""
    if layout != ONE_INPUT:
        raise Misuse(
            "A model with several or named inputs cannot have its images augmented.",
            "Give the images as the only input, or leave augment out.",
        )
    augment.check(held.arrays[0].shape[1:])


def _trial(
    flat: FlatModule, inputs: Part, types: list[torch.dtype]
) -> tuple[Tensor, list[torch.dtype]]:
    """The output for two samples, and the types in which the model takes its inputs."""
    real = [dtype if dtype == torch.bool else flat.dtype for dtype in types]
    problem = None
    for tried in [types] if real == types else [types, real]:
        some = _first_two(inputs, tried)
        try:
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                output = flat(flat.weights(), *some)
        except Misuse:
            raise
        except Exception as error:  # users' modules raise many kinds
            problem = problem or error
        else:
            return output, tried
    names = flat.layout.names or ["" for _ in inputs]
    given = ", ".join(
        f"{name + ' ' if name else ''}{tuple(array[:2].shape)} of {_name(array.dtype)}"
        for name, array in zip(names, inputs, strict=True)
    )
    assert problem is not None
    raise Misuse(
        f"The model fails on two samples, {given}: {first_line(problem)}.",
        "Give inputs of the shape and type that it takes, with the samples as first dimension.",
    ) from problem


def _check_samples_first(
    flat: FlatModule, inputs: Part, types: list[torch.dtype], output: Tensor
) -> None:
    """Raise Misuse if the first dimension of the output does not count the samples."""
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            single = flat(flat.weights(), *(one[:1] for one in _first_two(inputs, types)))
    except Exception:  # BatchNorm refuses a batch of one sample
        return
    if single.shape == (1, *output.shape[1:]) or not output.ndim:
        return
    raise Misuse(
        f"The model's output has shape {tuple(output.shape)} for two samples and "
        f"{tuple(single.shape)} for one.",
        "Return samples as the first dimension, also if it is one sample: squeeze(-1) or "
        "flatten(1) instead of squeeze().",
    )


def _first_two(arrays: Part, types: Sequence[torch.dtype]) -> list[Tensor]:
    """Copies of two samples: a model may write into what it gets."""
    pairs = zip(arrays, types, strict=True)
    return [array[:2].to(dtype, copy=True) for array, dtype in pairs]


def _try_loss(criterion: Criterion, output: Tensor, targets: Sequence[Tensor]) -> None:
    shapes = f"{tuple(output.shape)} and targets of shape " + ", ".join(
        str(tuple(array.shape)) for array in targets
    )
    try:
        value = check_repeatable("loss", lambda: criterion(output, *targets))
    except Misuse:
        raise
    except Exception as error:  # users' losses raise many kinds
        raise Misuse(
            f"The loss fails for an output of shape {shapes}: {first_line(error)}.",
            "Give a `loss` that takes them, or a model and targets that fit it: for "
            "cross-entropy, an output per class and whole numbers as targets.",
        ) from error
    if not isinstance(value, Tensor) or value.ndim:
        kind = f"of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value)
        raise Misuse(
            f"The loss for an output of shape {shapes} is {kind}.",
            "Return one number as a tensor, e.g. the mean over the samples.",
        )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
