"""Fits a client's arrays and a loss to a model: a trial on two samples says what does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tacit.core.checks import check_methods
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
from tacit.tasks.finite import check_finite
from tacit.tasks.flat import FlatModule, ModuleLoss
from tacit.tasks.inputs import ONE_INPUT, InputLayout, read_part
from tacit.tasks.loss_trial import try_loss
from tacit.tasks.parts import Part, Parts
from tacit.tasks.pure import thread_safe


@dataclass(frozen=True)
class Fit:
    """A loss that fits a model's output, and the types that the arrays must have.

    `output` is that of two samples.
    """

    criterion: Criterion
    dtypes: tuple[torch.dtype, ...]
    output: Tensor

    def convert(self, arrays: Sequence[Tensor]) -> Part:
        """The arrays in these types; those that have them are not copied."""
        pairs = zip(arrays, self.dtypes, strict=False)
        return tuple(array.to(dtype) for array, dtype in pairs)

    def check(self, arrays: Sequence[Tensor]) -> None:
        """Raise Misuse if held-out arrays change in these types, or targets do not fit."""
        for array, dtype in zip(arrays, self.dtypes, strict=True):
            # Whole numbers in another type are the same numbers.
            loses = not torch.can_cast(array.dtype, dtype)
            if loses and (array.is_complex() or bool((array.to(dtype) != array).any())):
                raise Misuse(
                    f"An array is {_name(array.dtype)}, and clients' data are {_name(dtype)}.",
                    "Give numbers of the kind that the clients have.",
                )
        check_targets(self.criterion, self.output, arrays[-1].to(self.dtypes[-1]))


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
    types = [_own_type(array, flat.dtype, array.dtype) for array in inputs]
    output, types = _trial(flat, inputs, types)
    _check_samples_first(flat, inputs, types, output)
    flat.check(*_first_two(inputs, types))
    types += [_own_type(array, flat.dtype, torch.int64) for array in targets]
    some = _first_two(targets, types[len(inputs) :])
    if len(some) == 1:
        criterion = fitting_criterion(criterion, output, some[0])
        check_targets(criterion, output, targets[0].to(types[-1]))
    try_loss(criterion, output, some)
    if isinstance(criterion, TokenLoss | BinaryLoss | StandardizedLoss):
        criterion = replace(criterion, criterion=thread_safe(criterion.criterion))
    else:
        criterion = thread_safe(criterion)
    return Fit(criterion, tuple(types), output)


def held_out(flat: FlatModule, fitted: Fit, test: Any, held: Parts) -> TestSet:
    """Evaluation on held-out data, which must have the arrays of the clients' data."""
    arrays, layout = read_part(test, -1)
    if len(arrays) != layout.count + 1 or layout != flat.layout:
        raise Misuse(
            f"test holds {len(arrays)} array(s), {layout.count} of them inputs.",
            "Give held-out (inputs, targets), with inputs as the clients have them.",
        )
    if not len(arrays[0]):
        raise Misuse("test has no samples.", "Give at least one, or leave `test` out.")
    for given, own in zip(arrays, held.arrays, strict=False):
        if given.shape[1:] != own.shape[1:] or len(given) != len(arrays[0]):
            raise Misuse(
                f"test holds an array of shape {tuple(given.shape)}, clients one of shape "
                f"{tuple(own.shape)}.",
                "Give as many inputs as targets, of the same shapes as the clients have.",
            )
    with prefix_errors("The test data"):
        fitted.check(arrays)
    *inputs, targets = fitted.convert(arrays)
    tested = Parts.split((*inputs, targets), [torch.arange(len(targets))])
    check_finite(ModuleLoss(flat, fitted.criterion), tested, test=True)
    return TestSet(flat.in_evaluation, fitted.criterion, inputs[0], targets, tuple(inputs[1:]))


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
        for column in zip(*((test.x, test.y, *test.further) for test in own), strict=True)
    )
    several = bool(own[0].further)
    pairs = [((test.x, *test.further) if several else test.x, test.y) for test in own]
    return TestSet(flat.in_evaluation, fitted.criterion, x, y, tuple(further)), pairs


def check_augment(augment: Augment, held: Parts, layout: InputLayout) -> None:
    """Raise Misuse if the inputs cannot be augmented."""
    check_methods("augment", augment, "check", remedy="Give a tacit.data.Augment, or leave it out.")
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
    real = [dtype if dtype == torch.bool or dtype.is_complex else flat.dtype for dtype in types]
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
    remedy = "Give inputs of the shape and type that it takes, with the samples as first dimension."
    if any(array.is_complex() for array in inputs):
        remedy = (
            "Give real inputs, with torch.view_as_real, or a model that takes complex ones, such "
            "as one that begins with torch.view_as_real."
        )
    raise Misuse(
        f"The model fails on two samples, {given}: {first_line(problem)}.", remedy
    ) from problem


def _check_samples_first(
    flat: FlatModule, inputs: Part, types: list[torch.dtype], output: Tensor
) -> None:
    """Raise Misuse if the first dimension of the output does not count the samples."""
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            single = flat(flat.weights(), *(array[:1] for array in _first_two(inputs, types)))
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


def _own_type(array: Tensor, real: torch.dtype, whole: torch.dtype) -> torch.dtype:
    """The type in which an array is tried: complex numbers stay what they are."""
    if array.is_complex():
        return array.dtype
    return real if array.is_floating_point() else whole


def _first_two(arrays: Part, types: Sequence[torch.dtype]) -> list[Tensor]:
    """Copies of two samples: a model may write into what it gets."""
    pairs = zip(arrays, types, strict=True)
    return [array[:2].to(dtype, copy=True) for array, dtype in pairs]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
