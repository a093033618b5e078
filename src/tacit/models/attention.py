"""Multi-head attention in plain operations: with dropout by keys and low-rank adapters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.core.errors import Misuse

if TYPE_CHECKING:
    from tacit.models.dropout import MaskKeys


class PlainAttention(nn.MultiheadAttention):
    """`nn.MultiheadAttention` with keyed dropout of its weights; made by `PlainAttention.of`.

    Without keys, as in evaluation, nothing is dropped.

    Attributes:
        p: The probability with which a weight is dropped.
        keys: The keys of the module that this layer is part of; None: it was not keyed.
        adapter: Added to the projected queries, keys and values; None: nothing.
    """

    p: float
    keys: MaskKeys | None
    adapter: nn.Module | None

    @classmethod
    def of(cls, layer: nn.MultiheadAttention) -> PlainAttention:
        """The layer itself, turned into one in plain operations.

        Raises:
            Misuse: If it computes something else than `nn.MultiheadAttention`, or has extra keys.
        """
        if isinstance(layer, cls):
            return layer
        extra = layer.bias_k is not None or layer.add_zero_attn
        if extra or type(layer).forward is not nn.MultiheadAttention.forward:
            raise Misuse(
                f"The model has a {type(layer).__name__} with "
                + ("add_bias_kv or add_zero_attn" if extra else "a forward of its own")
                + ", whose dropout cannot be keyed and which cannot have adapters.",
                "Use a plain nn.MultiheadAttention, set its dropout = 0, or give other targets.",
            )
        layer.__class__ = cls
        assert isinstance(layer, cls)
        layer.p, layer.dropout = layer.dropout, 0.0
        layer.keys, layer.adapter = None, None
        return layer

    def become_usual(self) -> None:
        """Undo `of`: drop the adapter and the keys."""
        self.dropout = self.p
        del self.keys, self.adapter, self.p
        self.__class__ = nn.MultiheadAttention  # type: ignore[assignment]

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        dropping = self.keys is not None and self.keys.keys is not None and self.p > 0
        if not dropping and self.adapter is None:
            return super().forward(
                query, key, value, key_padding_mask, need_weights, attn_mask,
                average_attn_weights, is_causal,
            )  # fmt: skip
        if query.ndim != 3:
            raise Misuse(
                f"Attention sees a query {tuple(query.shape)} without samples.",
                "Give it a batch [samples, length, features].",
            )
        inputs = [query] if query is key and key is value else [query, key, value]
        if not self.batch_first:
            inputs = [x.transpose(0, 1) for x in inputs]
        q, k, v = map(self._by_head, self._projected(inputs))
        scores = q @ k.mT * self.head_dim**-0.5
        if (mask := self._mask(key_padding_mask, attn_mask, scores)) is not None:
            scores = scores + mask
        weights = scores.softmax(-1)
        if dropping:
            assert self.keys is not None
            weights = weights * self.keys.factors(weights, self.p)
        output = self.out_proj((weights @ v).transpose(1, 2).flatten(2))
        if not self.batch_first:
            output = output.transpose(0, 1)
        if not need_weights:
            return output, None
        return output, weights.mean(1) if average_attn_weights else weights

    def _projected(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Queries, keys and values [B, length, E], of three inputs or of one for all."""
        projected: Sequence[Tensor]
        if len(inputs) == 1 and self._qkv_same_embed_dim:
            whole = functional.linear(inputs[0], self.in_proj_weight, self.in_proj_bias)
            projected = whole.chunk(3, -1)
        else:
            matrices: Sequence[Tensor] = (
                self.q_proj_weight,
                self.k_proj_weight,
                self.v_proj_weight,
            )
            if self._qkv_same_embed_dim:
                matrices = self.in_proj_weight.chunk(3)
            biases = [None] * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
            each = inputs if len(inputs) == 3 else 3 * list(inputs)
            triples = zip(each, matrices, biases, strict=True)
            projected = [functional.linear(x, matrix, bias) for x, matrix, bias in triples]
        if self.adapter is None:
            return projected
        return [x + more for x, more in zip(projected, self.adapter(*inputs), strict=True)]

    def _by_head(self, x: Tensor) -> Tensor:
        """[B, length, E] as [B, heads, length, E/heads]."""
        return x.reshape(*x.shape[:2], self.num_heads, self.head_dim).transpose(1, 2)

    def _mask(
        self, padding: Tensor | None, attention: Tensor | None, scores: Tensor
    ) -> Tensor | None:
        """What is added to the scores [B, heads, length, length]."""
        masks = []
        if padding is not None:
            masks.append(padding[:, None, None, :])
        if attention is not None:
            masks.append(attention if attention.ndim == 2 else attention.reshape(scores.shape))
        added = [
            torch.zeros_like(mask, dtype=scores.dtype).masked_fill(mask, -torch.inf)
            if mask.dtype == torch.bool
            else mask.to(scores.dtype)
            for mask in masks
        ]
        return sum(added[1:], added[0]) if added else None
