"""Gradients of n clients with models of their own: in one pass, or of one client alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from tacit.gradients.rules import RULES
from tacit.gradients.stacked import (
    GradientPlace,
    NoHooks,
    NotStackable,
    Stack,
    Stacked,
    Unseen,
    by_vmap,
    rows_of,
)

# Takes the parameters and the arrays of one client, and returns its loss, one number.
Loss = Callable[[Sequence[Tensor], Sequence[Tensor]], Tensor]


def write_stacked(
    loss: Loss, parameters: Sequence[Tensor], arrays: Sequence[Tensor], out: Sequence[Tensor]
) -> bool:
    """Write the gradients of n clients in one pass.

    Args:
        loss: The loss of one client, from its parameters and its arrays.
        parameters: Each parameter of all clients, [n, ...].
        arrays: Each array of all clients, [n, ...].
        out: Where to write the gradient by each parameter, [n, ...].

    Returns:
        Whether rules wrote all of them into their places, as those with compiled loops do.

    Raises:
        NotStackable: If the loss has a step that cannot be computed for all clients at once.
    """
    with recording():
        stack = Stack(len(parameters[0]), RULES)
        models, places = [], []
        for x, rows in zip(parameters, out, strict=True):
            leaf, place = usable(x).detach().requires_grad_(), GradientPlace(rows)
            # As soon as it is complete, so that not all of them are in memory at once.
            leaf.register_post_accumulate_grad_hook(place.collect)  # type: ignore[no-untyped-call]
            models.append(Stacked(leaf, stack, place))
            places.append(place)
        given = [Stacked(usable(x), stack) for x in arrays]
        # The gradient of the sum of all losses has each client's gradient in its row.
        _backward(_values(loss, models, given).sum())
    for place in places:
        if not (place.claimed or place.collected):
            place.place.zero_()
    return not any(place.collected for place in places)


def write_one(
    loss: Loss, parameters: Sequence[Tensor], arrays: Sequence[Tensor], out: Sequence[Tensor]
) -> None:
    """Write the gradient of one client: slow and obviously right.

    Args:
        loss: Its loss.
        parameters: Its parameters.
        arrays: Its arrays.
        out: Where to write the gradient by each parameter.
    """
    with recording():
        points = [usable(x).detach().requires_grad_() for x in parameters]
        value = loss(points, [usable(x) for x in arrays])
        gradients: Sequence[Tensor | None] = [None] * len(points)
        if value.requires_grad:
            with torch.autocast(value.device.type, enabled=False):
                gradients = torch.autograd.grad(value, points, allow_unused=True)
    for place, gradient in zip(out, gradients, strict=True):
        if gradient is None:
            place.zero_()
        else:
            place.copy_(gradient)


def outputs(function: Callable[[Sequence[Tensor]], Tensor], parameters: Sequence[Tensor]) -> Tensor:
    """What a function of parameters returns for n models, [n, ...].

    Args:
        function: Takes the parameters of one model.
        parameters: Each parameter of all models, [n, ...].

    Raises:
        NotStackable: If it has a step that cannot be computed for all models at once.
    """
    stack = Stack(len(parameters[0]), RULES)
    return rows_of(function([Stacked(rows, stack) for rows in parameters]), stack)


def losses(loss: Loss, parameters: Sequence[Tensor], arrays: Sequence[Tensor]) -> Tensor:
    """The losses [n] of n clients in one pass, without gradients.

    Args:
        loss: The loss of one client, from its parameters and its arrays.
        parameters: Each parameter of all clients, [n, ...]. One model that is expanded to n clients
            takes less work.
        arrays: Each array of all clients, [n, ...].

    Raises:
        NotStackable: If the loss has a step that cannot be computed for all clients at once.
    """
    stack = Stack(len(parameters[0]), RULES)
    one_model = all(x.stride(0) == 0 for x in parameters)
    with torch.no_grad():
        models = [x[0] if one_model else Stacked(x, stack) for x in parameters]
        return _values(loss, models, [Stacked(x, stack) for x in arrays])


def _values(loss: Loss, models: Sequence[Tensor], given: Sequence[Tensor]) -> Tensor:
    """The losses [n] of Stacked models and arrays."""
    try:
        value = loss(models, given)
    except Unseen:
        # The loss uses torch.func itself, whose transformations only nest in each other.
        with NoHooks():
            value = by_vmap(loss, (models, given), {})
    if not isinstance(value, Stacked):
        raise NotStackable("the loss does not depend on the model or its data")
    if value.dim():
        raise NotStackable(f"the loss has the shape {tuple(value.shape)}")
    return value.rows


def _backward(value: Tensor) -> None:
    if value.requires_grad:
        # Gradients are computed in the types of the results.
        with torch.autocast(value.device.type, enabled=False):
            value.backward()  # type: ignore[no-untyped-call]


@contextmanager
def recording() -> Iterator[None]:
    """Record operations for a backward pass, whatever the caller's mode is."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


def usable(x: Tensor) -> Tensor:
    """The tensor, or a copy if it was made in inference mode and cannot be recorded."""
    return x.clone() if x.is_inference() else x
