"""Multi-head attention in plain operations: with dropout by keys and low-rank adapters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.core.errors import Misuse
from tacit.models.mask_keys import MaskKeys


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
        q, k, v = (by_head(x, self.num_heads) for x in self._projected(inputs))
        scores = q @ k.mT * self.head_dim**-0.5
        mask = added_mask(key_padding_mask, attn_mask, self.num_heads, scores)
        if mask is not None:
            scores = scores + mask
        weights = attention_weights(scores, masked=mask is not None)
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
        matrices: Tensor | Sequence[Tensor] = self.in_proj_weight
        if not self._qkv_same_embed_dim:
            matrices = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        projected = project(inputs, matrices, self.in_proj_bias)
        if self.adapter is None:
            return projected
        return [x + more for x, more in zip(projected, self.adapter(*inputs), strict=True)]


def attention_arguments(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> tuple[tuple[Tensor, Tensor, Tensor, Tensor | None], dict[str, Any]]:
    """What `scaled_dot_product_attention` is called with: tensors, and other options by name."""
    options |= {"dropout_p": dropout_p, "is_causal": is_causal}
    return (query, key, value, attn_mask), options


def project(
    inputs: Sequence[Tensor], matrices: Tensor | Sequence[Tensor], bias: Tensor | None
) -> Sequence[Tensor]:
    """Queries, keys and values, of three inputs [..., D] or of one for all.

    `matrices` are three, or one of all rows of the three; `bias` is of all rows.
    """
    if len(inputs) == 1 and isinstance(matrices, Tensor):
        return functional.linear(inputs[0], matrices, bias).chunk(3, -1)
    three = matrices.chunk(3) if isinstance(matrices, Tensor) else matrices
    biases = [None] * 3 if bias is None else bias.chunk(3)
    each = inputs if len(inputs) == 3 else 3 * list(inputs)
    triples = zip(each, three, biases, strict=True)
    return [functional.linear(x, matrix, part) for x, matrix, part in triples]


def by_head(x: Tensor, heads: int) -> Tensor:
    """[B, length, E] as [B, heads, length, E/heads]."""
    return x.reshape(*x.shape[:2], heads, -1).transpose(1, 2)


def plain_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    factors: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """`scaled_dot_product_attention` in plain operations.

    `factors` gives what to multiply the weights [..., length, length] by.
    """
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    elif mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -torch.inf)
    elif mask is not None:
        scores = scores + mask
    weights = attention_weights(scores, masked=mask is not None)
    if factors is not None:
        weights = weights * factors(weights)
    return weights @ value


def attention_weights(scores: Tensor, *, masked: bool) -> Tensor:
    """The softmax of scores [..., length, length]; zero in rows whose scores are all −∞.

    So has torch's `scaled_dot_product_attention`; the softmax alone would be NaN there. Without a
    mask there are no such rows.
    """
    if not masked:
        return scores.softmax(-1)
    blind = scores.isneginf().all(-1, keepdim=True)
    return scores.masked_fill(blind, 0).softmax(-1).masked_fill(blind, 0)


def added_mask(
    padding: Tensor | None, attention: Tensor | None, heads: int, like: Tensor
) -> Tensor | None:
    """What is added to scores [B, heads, length, length], from both kinds of masks.

    Masks are bool, True where nothing is seen, or numbers. That of attention is for all samples and
    heads, or for each: [B · heads, length, length].
    """
    masks = []
    if padding is not None:
        masks.append(padding[:, None, None, :])
    if attention is not None:
        by_sample = attention.ndim == 3
        masks.append(attention.unflatten(0, (-1, heads)) if by_sample else attention)  # type: ignore[no-untyped-call]
    added = [
        torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, -torch.inf)
        if mask.dtype == torch.bool
        else mask.to(like.dtype)
        for mask in masks
    ]
    return sum(added[1:], added[0]) if added else None
