"""Recurrent layers: one batched product per step of the sequence, for all rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from tacit.gradients.stacked import Rule, Stack, first_stacked, rows_of

# What a layer carries from step to step, each [n, B, H]: the output, and the cell of an LSTM.
Carried = tuple[Tensor, ...]
# Takes the products of the inputs [n, B, gates], those of the output of the step before, and what
# is carried.
Cell = Callable[[Tensor, Tensor, Carried], Carried]


def _lstm_cell(x: Tensor, h: Tensor, carried: Carried) -> Carried:
    i, f, g, o = (x + h).chunk(4, -1)
    c = f.sigmoid() * carried[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _gru_cell(x: Tensor, h: Tensor, carried: Carried) -> Carried:
    (xr, xz, xn), (hr, hz, hn) = x.chunk(3, -1), h.chunk(3, -1)
    z = (xz + hz).sigmoid()
    n = (xn + (xr + hr).sigmoid() * hn).tanh()
    return ((carried[0] - n) * z + n,)


def _tanh_cell(x: Tensor, h: Tensor, carried: Carried) -> Carried:
    return ((x + h).tanh(),)


def _relu_cell(x: Tensor, h: Tensor, carried: Carried) -> Carried:
    return ((x + h).relu(),)


def _layers(cell: Cell, carries: int, *args: Any, **kwargs: Any) -> Any:
    """`torch.lstm` and its like: several layers, perhaps in both directions."""
    if kwargs or len(args) != 9 or isinstance(args[3], list | tuple):
        # Sequences of different lengths, which are packed.
        return NotImplemented
    input, hx, flat, biases, count, dropout, train, bidirectional, batch_first = args
    if dropout and train and count > 1:
        return NotImplemented
    stack = first_stacked(*tree_leaves((input, hx, flat))).stack
    x = rows_of(input, stack)
    # Sequences first: [n, T, B, features].
    x = x.transpose(1, 2) if batch_first else x
    states = [rows_of(h, stack) for h in (hx if carries == 2 else (hx,))]
    directions = 1 + bool(bidirectional)
    per_layer = len(flat) // (count * directions)
    ends: list[Carried] = []
    for layer in range(count):
        outputs = []
        for direction in range(directions):
            number = layer * directions + direction
            weights = flat[number * per_layer : (number + 1) * per_layer]
            begin = tuple(state[:, number] for state in states)
            given = x.flip(1) if direction else x
            y, end = _sequence(cell, given, begin, weights, bool(biases), stack)
            outputs.append(y.flip(1) if direction else y)
            ends.append(end)
        x = torch.cat(outputs, -1) if directions > 1 else outputs[0]
    some = first_stacked(*tree_leaves((input, hx, flat)))
    output = some.like(x.transpose(1, 2) if batch_first else x)
    return output, *(some.like(torch.stack(last, 1)) for last in zip(*ends, strict=True))


def _sequence(
    cell: Cell, x: Tensor, carried: Carried, weights: Sequence[Tensor], biases: bool, stack: Stack
) -> tuple[Tensor, Carried]:
    """The outputs [n, T, B, H] of one layer for x [n, T, B, I], and what the last step carries."""
    w = [rows_of(weight, stack) for weight in weights]
    # A further matrix projects the output of an LSTM.
    projection = w.pop() if len(w) % 2 else None
    inputs = _product(x.flatten(1, 2), w[0], w[2] if biases else None)
    inputs = inputs.unflatten(1, x.shape[1:3])  # type: ignore[no-untyped-call]
    outputs = []
    for step in inputs.unbind(1):
        carried = cell(step, _product(carried[0], w[1], w[3] if biases else None), carried)
        if projection is not None:
            carried = (carried[0] @ projection.mT, *carried[1:])
        outputs.append(carried[0])
    return torch.stack(outputs, 1), carried


def _product(x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    return x @ w.mT if b is None else torch.baddbmm(b[:, None], x, w.mT)


def _one_step(
    cell: Cell, carries: int, input: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None,
    b_hh: Any = None,
) -> Any:  # fmt: skip
    """`torch.lstm_cell` and its like."""
    some = first_stacked(*tree_leaves((input, hx, w_ih, w_hh, b_ih, b_hh)))
    if input.dim() != 2:
        return NotImplemented
    x, w, u = (rows_of(part, some.stack) for part in (input, w_ih, w_hh))
    b, c = (None if part is None else rows_of(part, some.stack) for part in (b_ih, b_hh))
    carried = tuple(rows_of(h, some.stack) for h in (hx if carries == 2 else (hx,)))
    after = tuple(map(some.like, cell(_product(x, w, b), _product(carried[0], u, c), carried)))
    return after if carries == 2 else after[0]


CELLS: dict[str, tuple[Cell, int]] = {
    "lstm": (_lstm_cell, 2), "gru": (_gru_cell, 1),
    "rnn_tanh": (_tanh_cell, 1), "rnn_relu": (_relu_cell, 1),
}  # fmt: skip
RULES: dict[Any, Rule] = {
    **{getattr(torch, name): partial(_layers, *cell) for name, cell in CELLS.items()},
    **{getattr(torch, f"{name}_cell"): partial(_one_step, *cell) for name, cell in CELLS.items()},
    # Where weights are in memory does not matter here.
    torch._cudnn_rnn_flatten_weight: lambda *args: None,
}
