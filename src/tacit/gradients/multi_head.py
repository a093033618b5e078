"""Multi-head attention as `torch.nn.MultiheadAttention` computes it, from replaceable functions."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional

from tacit.models.attention import added_mask, by_head, project


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
    inputs = [query] if query is key and key is value else [query, key, value]
    matrices: Any = in_proj_weight
    if use_separate_proj_weight:
        matrices = (q_proj_weight, k_proj_weight, v_proj_weight)
    projected = project([x.transpose(0, 1) for x in inputs], matrices, in_proj_bias)
    q, k, v = (by_head(x, num_heads) for x in projected)
    mask = added_mask(key_padding_mask, attn_mask, num_heads, q)
    weights = None
    if need_weights:
        scores = q @ k.mT * q.shape[-1] ** -0.5
        weights = (scores if mask is None else scores + mask).softmax(-1)
        weights = functional.dropout(weights, dropout_p, training) if dropout_p else weights
        y = weights @ v
        weights = weights.mean(1) if average_attn_weights else weights
    else:
        rate, causal = dropout_p if training else 0.0, is_causal and mask is None
        y = functional.scaled_dot_product_attention(q, k, v, mask, rate, causal)
    y = y.transpose(1, 2).flatten(2).transpose(0, 1)
    y = functional.linear(y, out_proj_weight, out_proj_bias)
    if alone:
        y, weights = y[:, 0], None if weights is None else weights[0]
    return y, weights
