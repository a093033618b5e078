"""Functions of torch for many clients at once, in the place of vmap's own rules.

A module runs once under `torch.vmap`, with a dimension of clients in its parameters and inputs.
For functions whose parameters differ from client to client, vmap multiplies sample by sample, uses
grouped convolutions, or falls back to a loop. Within `client_rules()` these functions work on the
tensors of all clients instead:

    linear                         one batched product; in TF32 our kernels, which add the bias
    conv2d                         our kernels on a GPU; on a CPU client by client
    group_norm, layer_norm         our kernels on a GPU, or normalised together and then scaled
    embedding                      vmap's own rule, but with a gradient of zero for padding
    scaled_dot_product_attention   clients folded into the batch
    multi_head_attention_forward   made of the functions above

Tensors that all clients share, such as frozen weights, are not repeated. Gradients come from
torch's autograd around vmap, so rules need no backward pass of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from tacit.gradients.attention import attention
from tacit.gradients.multi_head import multi_head_attention
from tacit.models.attention import attention_arguments, plain_attention
from tacit.tasks.batching.convolution import convolve
from tacit.tasks.batching.linear import linear
from tacit.tasks.batching.normalisation import group_norm, layer_norm

# Takes the number of clients, which arguments have a dimension of clients, and the arguments with
# that dimension first; returns the result with that dimension first.
Rule = Callable[..., Tensor]
# Hooks of the backward pass are not called under vmap, where no tensor says that it requires a
# gradient.
HOOKS: dict[Any, str] = {
    Tensor.register_hook: "register_hook",
    Tensor.register_post_accumulate_grad_hook: "register_post_accumulate_grad_hook",
    Tensor.requires_grad.__get__: "requires_grad",  # type: ignore[attr-defined]
}


class _ForAllClients(torch.autograd.Function):
    """Calls a rule with the tensors of all clients."""

    @staticmethod
    def forward(rule: Rule, *arguments: Any) -> Tensor:
        # Outside of vmap, or if no argument has a dimension of clients.
        given = [x[None] if isinstance(x, Tensor) else x for x in arguments]
        return rule(1, [isinstance(x, Tensor) for x in arguments], *given)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        raise NotImplementedError("gradients are taken around vmap, not inside")

    @staticmethod
    def vmap(info: Any, in_dims: Any, rule: Rule, *arguments: Any) -> tuple[Tensor, int]:
        dims = in_dims[1:]
        moved = [
            x if dim is None else x.movedim(dim, 0) for x, dim in zip(arguments, dims, strict=True)
        ]
        return rule(info.batch_size, [dim is not None for dim in dims], *moved), 0


class Replacing(TorchFunctionMode):
    """Calls other functions in the place of some of torch's, and refuses some."""

    def __init__(
        self, replaced: Mapping[Any, Callable[..., Any]], refused: Mapping[Any, str] | None = None
    ) -> None:
        super().__init__()
        self._replaced, self._refused = replaced, refused or {}

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in self._refused:
            raise NotImplementedError(f"the model uses {self._refused[func]} of a tensor")
        other = self._replaced.get(func)
        if other is not None:
            return other(*args, **(kwargs or {}))
        if func is functional.multi_head_attention_forward:
            # Its own functions are replaced in turn. Rare options are left to torch.
            with self, suppress(NotImplementedError):
                return multi_head_attention(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def client_rules() -> Replacing:
    """The context in which modules run under vmap."""
    return Replacing(RULES, HOOKS)


def deterministic_attention() -> Replacing:
    """The context in which the attention of one client gives the same bits every time."""
    return Replacing({functional.scaled_dot_product_attention: attention})


def attention_of_samples() -> Replacing:
    """The context in which gradients of single samples are taken inside vmap."""
    return Replacing({functional.scaled_dot_product_attention: _plain_attention})


def _plain_attention(*args: Any, **kwargs: Any) -> Tensor:
    """Attention in operations that have a rule for vmap; torch's fused ones have none."""
    (query, key, value, mask), options = attention_arguments(*args, **kwargs)
    if options.pop("dropout_p") or options.pop("enable_gqa", False):
        return functional.scaled_dot_product_attention(*args, **kwargs)
    return plain_attention(query, key, value, mask, **options)


def _expanded(x: Tensor, clients: int, batched: bool) -> Tensor:
    return x if batched else x.expand(clients, *x.shape)


def _linear(clients: int, batched: list[bool], x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    if not batched[1] and not (bias is not None and batched[2]):
        return functional.linear(_expanded(x, clients, batched[0]), w, bias)
    x, w = _expanded(x, clients, batched[0]), _expanded(w, clients, batched[1])
    b = None if bias is None else _expanded(bias, clients, batched[2])
    y = linear(x.reshape(clients, -1, x.shape[-1]), w, b)
    return y.view(*x.shape[:-1], w.shape[1])


def _conv2d(
    clients: int,
    batched: list[bool],
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    *,
    stride: tuple[int, int],
    padding: tuple[int, int],
) -> Tensor:
    x = _expanded(x, clients, batched[0])
    if not batched[1] and not (bias is not None and batched[2]):
        y = functional.conv2d(x.flatten(0, 1), w, bias, stride, padding)
        return y.unflatten(0, x.shape[:2])  # type: ignore[no-untyped-call, no-any-return]
    b = None if bias is None else _expanded(bias, clients, batched[2])
    return convolve(x, _expanded(w, clients, batched[1]), b, stride, padding)


def _normalise(
    clients: int,
    batched: list[bool],
    x: Tensor,
    w: Tensor | None,
    b: Tensor | None,
    *,
    norm: Callable[..., Tensor],
    **options: Any,
) -> Tensor:
    w = None if w is None else _expanded(w, clients, batched[1])
    b = None if b is None else _expanded(b, clients, batched[2])
    return norm(_expanded(x, clients, batched[0]), w=w, b=b, **options)


def _attention(
    clients: int,
    batched: list[bool],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    **options: Any,
) -> Tensor:
    q, k, v = (_expanded(x, clients, own) for x, own in zip((q, k, v), batched[:3], strict=True))
    if mask is not None and batched[3]:
        # As many dimensions as the scores, so that that of the clients can be folded too.
        mask = mask.view(clients, *(1 for _ in range(q.ndim - mask.ndim)), *mask.shape[1:])
        mask = _folded(mask.expand(*q.shape[: mask.ndim - 2], *mask.shape[-2:]))
    elif mask is not None and mask.ndim > 2:
        mask = _folded(mask.expand(*q.shape[: q.ndim - 2], *mask.shape[-2:]))
    y = attention(_folded(q), _folded(k), _folded(v), mask, **options)
    return y.view(*q.shape[:-1], v.shape[-1])


def _folded(x: Tensor) -> Tensor:
    """The last four dimensions and those before them, folded into the first one."""
    return x.flatten(0, x.ndim - 4) if x.ndim > 4 else x


def _for_all(rule: Rule, *tensors: Tensor | None, **options: Any) -> Any:
    chosen = partial(rule, **options) if options else rule
    return _ForAllClients.apply(chosen, *tensors)  # type: ignore[no-untyped-call]


def _replaced_linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if weight.ndim != 2:
        return functional.linear(input, weight, bias)
    return _for_all(_linear, input, weight, bias)


def _replaced_conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    plain = not isinstance(padding, str) and _pair(dilation) == (1, 1) and groups == 1
    if not plain or input.ndim != 4:
        return functional.conv2d(input, weight, bias, stride, padding, dilation, groups)
    sizes = {"stride": _pair(stride), "padding": _pair(padding)}
    return _for_all(_conv2d, input, weight, bias, **sizes)


def _replaced_group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    return _for_all(_normalise, input, weight, bias, norm=group_norm, groups=num_groups, eps=eps)


def _replaced_layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    shape = tuple(normalized_shape)
    return _for_all(_normalise, input, weight, bias, norm=layer_norm, shape=shape, eps=eps)


def _replaced_embedding(
    input: Tensor, weight: Tensor, padding_idx: int | None = None, *args: Any, **options: Any
) -> Tensor:
    y = functional.embedding(input, weight, None, *args, **options)
    if padding_idx is None:
        return y
    # The rule of vmap forgets that weights of padding have no gradient.
    padding = padding_idx if padding_idx >= 0 else len(weight) + padding_idx
    return torch.where((input == padding)[..., None], y.detach(), y)


def _replaced_attention(*args: Any, **kwargs: Any) -> Any:
    (q, k, v, mask), options = attention_arguments(*args, **kwargs)
    inner = 3 if options.get("enable_gqa") else 2
    if not q.shape[:-inner] == k.shape[:-inner] == v.shape[:-inner]:
        # Torch expands samples or heads.
        return functional.scaled_dot_product_attention(q, k, v, mask, **options)
    return _for_all(_attention, q, k, v, mask, **options)


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[-1]))


RULES: Mapping[Any, Callable[..., Any]] = {
    functional.linear: _replaced_linear,
    functional.embedding: _replaced_embedding,
    functional.conv2d: _replaced_conv2d,
    functional.group_norm: _replaced_group_norm,
    functional.layer_norm: _replaced_layer_norm,
    functional.scaled_dot_product_attention: _replaced_attention,
}
