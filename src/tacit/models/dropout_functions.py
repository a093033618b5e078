"""Dropout by functions such as `torch.nn.functional.dropout`, drawn from keys instead."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from tacit.models.attention import attention_arguments, plain_attention
from tacit.models.dropout import KeyedDropout
from tacit.models.mask_keys import MaskKeys

# What each function drops: whether channels, and whether it is for SELU.
DROPOUTS: dict[Callable[..., Any], tuple[bool, bool]] = {
    functional.dropout: (False, False),
    functional.dropout1d: (True, False),
    functional.dropout2d: (True, False),
    functional.dropout3d: (True, False),
    functional.alpha_dropout: (False, True),
    functional.feature_alpha_dropout: (True, True),
}


class KeyedFunctions(TorchFunctionMode):
    """A context in which dropout by functions is that of `KeyedDropout` with these keys."""

    def __init__(self, keys: MaskKeys) -> None:
        super().__init__()
        self.keys = keys

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        options = dict(kwargs or {})
        if func in DROPOUTS:
            return self._dropout(func, *args, **options)
        if func is functional.scaled_dot_product_attention:
            return self._attention(*args, **options)
        return func(*args, **options)

    def _dropout(self, func: Callable[..., Any], *args: Any, **options: Any) -> Any:
        bound = inspect.signature(func).bind(*args, **options)
        bound.apply_defaults()
        x, p, training, inplace = (
            bound.arguments[name] for name in ("input", "p", "training", "inplace")
        )
        if not training or p == 0:
            return x
        return KeyedDropout(p, self.keys, *DROPOUTS[func], inplace=inplace)(x)

    def _attention(self, *args: Any, **kwargs: Any) -> Tensor:
        (query, key, value, mask), options = attention_arguments(*args, **kwargs)
        rate, grouped = options.pop("dropout_p"), bool(options.get("enable_gqa"))
        if rate == 0 or self.keys.keys is None or grouped:
            # Grouped queries have no keyed dropout: what it draws is found, and refused.
            rate = rate if grouped else 0.0
            return functional.scaled_dot_product_attention(query, key, value, mask, rate, **options)
        return plain_attention(
            query, key, value, mask, is_causal=options["is_causal"], scale=options.get("scale"),
            factors=lambda weights: self.keys.factors(weights, rate),
        )  # fmt: skip
