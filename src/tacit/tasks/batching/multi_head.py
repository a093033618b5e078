"""Multi-head attention as `torch.nn.MultiheadAttention` computes it, from replaceable functions."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """The arguments and results of `torch.nn.functional.multi_head_attention_forward`.

    Sequences come first: query is [T, B, E], or [T, E] without a batch.

    Raises:
        NotImplementedError: For options that are hardly ever used.
    """
    rare = (bias_k, bias_v, static_k, static_v)
    if add_zero_attn or any(option is not None for option in rare):
        raise NotImplementedError("attention with bias_k, add_zero_attn or static keys")
    alone = query.ndim == 2
    if alone:
        query, key, value = (x[:, None] for x in (query, key, value))
        key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
    length, batch, width = query.shape
    if use_separate_proj_weight:
        weights: Any = (q_proj_weight, k_proj_weight, v_proj_weight)
    else:
        assert in_proj_weight is not None
        weights = in_proj_weight.chunk(3)
    biases: Any = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)
    if query is key and key is value and not use_separate_proj_weight:
        assert in_proj_weight is not None
        projected: Any = functional.linear(query, in_proj_weight, in_proj_bias).chunk(3, -1)
    else:
        projected = [
            functional.linear(x, w, b)
            for x, w, b in zip((query, key, value), weights, biases, strict=True)
        ]
    # [B, heads, T, D]
    q, k, v = (
        x.reshape(x.shape[0], batch, num_heads, width // num_heads).permute(1, 2, 0, 3)
        for x in projected
    )
    mask = _mask(attn_mask, key_padding_mask, batch, num_heads, q.dtype)
    weights_seen = None
    if need_weights:
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        scores = scores if mask is None else scores + mask
        seen = scores.softmax(-1)
        seen = functional.dropout(seen, dropout_p, training) if dropout_p and training else seen
        y = seen @ v
        weights_seen = seen.mean(1) if average_attn_weights else seen
    else:
        causal = is_causal and mask is None
        rate = dropout_p if training else 0.0
        y = functional.scaled_dot_product_attention(q, k, v, mask, rate, causal)
    y = y.permute(2, 0, 1, 3).reshape(length, batch, width)
    y = functional.linear(y, out_proj_weight, out_proj_bias)
    if alone:
        y, weights_seen = y[:, 0], None if weights_seen is None else weights_seen[0]
    return y, weights_seen


def _mask(
    attn_mask: Tensor | None, padding: Tensor | None, batch: int, heads: int, dtype: torch.dtype
) -> Tensor | None:
    """What is added to the scores [B, heads, T, S], from both kinds of masks."""
    mask = None
    if attn_mask is not None:
        mask = _additive(attn_mask, dtype)
        # One mask for all, or one for each of the B · heads.
        mask = mask if mask.ndim == 2 else mask.reshape(batch, heads, *mask.shape[-2:])
    if padding is not None:
        hidden = _additive(padding, dtype)[:, None, None, :]
        mask = hidden if mask is None else mask + hidden
    return mask


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    zeros = torch.zeros((), dtype=dtype, device=mask.device)
    return torch.where(mask, -math.inf, zeros)
