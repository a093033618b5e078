"""The gradient of each sample by parameters that all have in common, in one pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.gradients.passes import Loss, recording
from tacit.gradients.products import Lookups, OuterProducts, Products, position_products
from tacit.gradients.rules import RULES, TAPED
from tacit.gradients.stacked import NotStackable, Stacked
from tacit.gradients.taped import Piece, Positions, Tape, Taped


def sample_products(
    loss: Loss, parameters: Sequence[Tensor], arrays: Sequence[Tensor]
) -> list[Products]:
    """The gradient of each of B samples by each parameter.

    Args:
        loss: The loss of a batch of one sample, from the parameters and its arrays.
        parameters: The parameters.
        arrays: Samples, [B, ...].

    Raises:
        NotStackable: If the loss has a step that cannot be computed for all samples at once.
    """
    with recording():
        points = [x.detach().clone().requires_grad_() for x in parameters]
        anchor = torch.zeros((), device=points[0].device, requires_grad=True)
        tape = Tape(len(arrays[0]), RULES, TAPED, anchor)
        try:
            models = [Taped(point, tape) for point in points]
            value = loss(models, [Stacked(array[:, None].detach(), tape) for array in arrays])
            if not isinstance(value, Stacked):
                raise NotStackable("the loss does not depend on the model")
            if value.dim():
                raise NotStackable(f"the loss has the shape {tuple(value.shape)}")
            if value.rows.requires_grad:
                value.rows.sum().backward()  # type: ignore[no-untyped-call]
            return _collected(tape, models)
        finally:
            # Tape and parameters hold each other: memory would be free only when Python looks for
            # such circles, many passes later.
            tape.clear()


def _collected(tape: Tape, models: Sequence[Taped]) -> list[Products]:
    """The gradients by each parameter, from all that was noted in the pass."""
    pieces: dict[int, list[Piece]] = {id(x): [] for x in tape.parameters}
    for taped, piece in tape.pieces:
        pieces[id(taped)].append(piece)
    derived = []
    for taped in tape.parameters:
        if taped.value._version != taped._version_then:
            raise NotStackable("a parameter is changed in place")
        if taped._rows is not None and taped._rows.grad is not None:
            pieces[id(taped)].append(taped._rows.grad)
    with torch.no_grad():
        # Later ones derive from earlier ones.
        for taped in reversed(tape.parameters[len(models) :]):
            noted = pieces[id(taped)]
            if not noted:
                continue
            if taped.transpose_of is not None and all(isinstance(x, Positions) for x in noted):
                pieces[id(taped.transpose_of)] += [
                    x.transposed() for x in noted if isinstance(x, Positions)
                ]
            else:
                derived.append((taped.value, _rows(noted, taped.value.shape)))
    if derived:
        values, rows = zip(*derived, strict=True)
        gradients = torch.autograd.grad(
            values, [x.value for x in models], rows, is_grads_batched=True, allow_unused=True
        )
        for taped, gradient in zip(models, gradients, strict=True):
            if gradient is not None:
                pieces[id(taped)].append(gradient)
    with torch.no_grad():
        return [_products(pieces[id(x)], tape.size, x.value) for x in models]


def _products(pieces: list[Piece], samples: int, value: Tensor) -> Products:
    """The gradient of each sample by one parameter: the sum of all pieces."""
    if not pieces:
        return OuterProducts(value.new_zeros(samples, value.numel()))
    positions = [x for x in pieces if isinstance(x, Positions)]
    if len(positions) == len(pieces):
        return _merged(positions)
    if len(pieces) == 1 and isinstance(pieces[0], Lookups | OuterProducts):
        return pieces[0]
    return OuterProducts(_rows(pieces, value.shape).reshape(samples, value.numel()))


def _merged(pieces: list[Positions]) -> Products:
    lefts, rights = [x.left for x in pieces], [x.right for x in pieces]
    if len(pieces) == 1:
        return position_products(lefts[0], rights[0])
    return position_products(torch.cat(lefts, 1), torch.cat(rights, 1))


def _rows(pieces: list[Piece], shape: torch.Size) -> Tensor:
    """The sum of pieces, [B, *shape]."""
    positions = [x for x in pieces if isinstance(x, Positions)]
    parts = [_merged(positions).rows()] if positions else []
    for x in pieces:
        if isinstance(x, Tensor):
            parts.append(x.reshape(len(x), shape.numel()))
        elif isinstance(x, Lookups | OuterProducts):
            parts.append(x.rows())
    total = parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)
    return total.view(len(total), *shape)
