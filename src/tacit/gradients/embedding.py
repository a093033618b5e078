"""Embeddings: tables that differ from row to row, and one that all samples have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit.gradients.products import Lookups
from tacit.gradients.stacked import Rule, Stacked, first_stacked, rows_of
from tacit.gradients.taped import Kept, Piece, Taped, is_sample


def _embedding(
    input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: Any = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Any:  # fmt: skip
    if max_norm is not None or sparse or scale_grad_by_freq:
        return NotImplemented
    some = first_stacked(input, weight)
    if not isinstance(weight, Stacked):
        return some.like(functional.embedding(rows_of(input, some.stack), weight, padding_idx))
    index, size = rows_of(input, some.stack), weight.shape[0]
    # The tables of all rows as one.
    first = torch.arange(len(index), device=index.device) * size
    shifted = index + first.view(-1, *(1 for _ in range(index.ndim - 1)))
    y = functional.embedding(shifted, weight.rows.flatten(0, 1))
    if padding_idx is not None:
        # Weights of padding have no gradient.
        padding = padding_idx if padding_idx >= 0 else size + padding_idx
        y = torch.where((index == padding)[..., None], y.detach(), y)
    return some.like(y)


def _taped_embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """Rows of a table [V, D]."""
    if not is_sample(input) or not isinstance(weight, Taped):
        return NotImplemented
    if max_norm is not None or scale_grad_by_freq:
        return NotImplemented
    size, width = weight.unrecorded.shape
    index = Kept(input.rows)

    def pieces(gradient: Tensor) -> Iterator[tuple[Taped, Piece]]:
        chosen = index.get().flatten(1)
        by_row = gradient.reshape(len(gradient), -1, width)
        if padding_idx is not None:
            by_row = by_row.masked_fill((chosen == padding_idx % size)[:, :, None], 0)
        yield weight, Lookups.of(chosen, by_row, size)

    return weight.stack.noted(functional.embedding(input.rows, weight.unrecorded), pieces)


RULES: dict[Any, Rule] = {functional.embedding: _embedding}
TAPED: dict[Any, Rule] = {functional.embedding: _taped_embedding}
