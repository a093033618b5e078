"""Attention in the place of torch's, where gradients of single samples are taken inside vmap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from tacit.models.attention import attention_arguments, plain_attention


class Replacing(TorchFunctionMode):
    """Calls other functions in the place of some of torch's."""

    def __init__(self, replaced: Mapping[Any, Callable[..., Any]]) -> None:
        super().__init__()
        self._replaced = replaced

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self._replaced.get(func, func)(*args, **(kwargs or {}))


def attention_of_samples() -> Replacing:
    """The context in which gradients of single samples are taken inside vmap."""
    return Replacing({functional.scaled_dot_product_attention: _plain_attention})


def _plain_attention(*args: Any, **kwargs: Any) -> Tensor:
    """Attention in operations that have a rule for vmap; torch's fused ones have none."""
    (query, key, value, mask), options = attention_arguments(*args, **kwargs)
    if options.pop("dropout_p") or options.pop("enable_gqa", False):
        return functional.scaled_dot_product_attention(*args, **kwargs)
    return plain_attention(query, key, value, mask, **options)
