"""A sketch of what a model has besides its trainable parameters: frozen weights and buffers.

Nodes do not exchange these, so theirs must be the same. A digest would not do: on another processor
drawn numbers and cosines differ in their last digits. The sketch has the sums of all numbers, each
with a sign that depends on its place, for several choices of signs (Alon et al. 1999). Squares of
its differences have the squared distance of the constants as expectation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from tacit.core.sample_keys import fold, words
from tacit.tasks.flat import Loss, ModuleLoss
from tacit.tasks.regression import OriginalUnit

# Choices of signs, one per bit of a byte.
SUMS = 8
# Share of their length by which constants may differ: rounding is less, bfloat16 is more.
TOLERANCE = 1e-4
# Numbers at a time.
TILE = 1 << 20


def sketch_of_constants(loss: Loss) -> tuple[float, ...]:
    """The sketch of a loss; empty if its model has no constants, or it has no model.

    The unit of a target is left out: until nodes agree on it, it tells a mean of a node's own rows.
    """
    if not isinstance(loss, ModuleLoss):
        return ()
    module = loss.flat.module
    frozen = [p for p in module.parameters() if not p.requires_grad]
    units = {id(x) for m in module.modules() if isinstance(m, OriginalUnit) for x in m.buffers()}
    buffers = [x for x in module.buffers() if id(x) not in units]
    held = [x.detach().flatten() for x in (*frozen, *buffers) if x.numel()]
    if not held:
        return ()
    shifts, sums = torch.arange(SUMS)[:, None], torch.zeros(SUMS, dtype=torch.float64)
    for number, tensor in enumerate(held):
        for tile, piece in enumerate(tensor.split(TILE)):  # type: ignore[no-untyped-call]
            key = fold(fold(torch.tensor(0), number), tile)
            signs = 1 - 2 * ((words(key, len(piece)) >> shifts) & 1)
            numbers = torch.view_as_real(piece).sum(1) if piece.is_complex() else piece
            numbers = numbers.cpu().double().nan_to_num()
            # Masks of attention have infinite numbers, which would hide all others.
            sums += signs.double() @ (numbers / (1 + numbers.abs()))
    return tuple(sums.tolist())


def constants_agree(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether two sketches are of the same constants, but for rounding."""
    if len(one) != len(other):
        return False
    distance = math.dist(one, other)
    return distance <= TOLERANCE * max(math.hypot(*one), math.hypot(*other))
