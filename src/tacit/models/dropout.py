"""Dropout whose masks follow from the keys of the samples, in place of a hidden random stream.

Layers are replaced, and functions such as `torch.nn.functional.dropout` are those of a context.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import dropout as torch_dropout
from torch.overrides import TorchFunctionMode

from tacit.core.errors import Misuse
from tacit.models.attention import PlainAttention, attention_arguments, plain_attention
from tacit.models.mask_keys import MaskKeys
from tacit.models.parameters import copied, replace_layers

# What AlphaDropout sets dropped numbers to: −λα of SELU.
ALPHA = -1.7580993408473766


class KeyedDropout(nn.Module):
    """Dropout with keyed masks. Without keys, as in evaluation, it changes nothing.

    Args:
        p: The probability with which a number or a channel is dropped.
        keys: The keys of the module that this layer is part of.
        by_channel: Whether whole channels are dropped, as by `nn.Dropout2d`.
        alpha: Whether mean and variance are kept for SELU, as by `nn.AlphaDropout`.
        usual: The kind of layer in whose place it is.
        inplace: Whether the result is also written over the input.
    """

    def __init__(
        self,
        p: float,
        keys: MaskKeys,
        by_channel: bool = False,
        alpha: bool = False,
        usual: type[torch_dropout._DropoutNd] = nn.Dropout,
        inplace: bool = False,
    ) -> None:
        super().__init__()
        self.p, self.keys, self.by_channel, self.alpha = p, keys, by_channel, alpha
        self.usual, self.inplace = usual, inplace

    def forward(self, x: Tensor) -> Tensor:
        if self.keys.keys is None:
            return x
        dropped = self._dropped(x)
        return x.copy_(dropped) if self.inplace else dropped

    def _dropped(self, x: Tensor) -> Tensor:
        if not self.alpha:
            return x * self.keys.factors(x, self.p, self.by_channel)
        kept = self.keys.keep(x.shape, self.p, self.by_channel).to(x.dtype)
        if self.p == 1:
            return x * 0
        scale = math.sqrt(1 / ((1 - self.p) * (1 + self.p * ALPHA**2)))
        scaled: Tensor = scale * (x * kept + ALPHA * (1 - kept) - ALPHA * self.p)
        return scaled

    def extra_repr(self) -> str:
        options = ", by_channel=True" * self.by_channel + ", alpha=True" * self.alpha
        return f"p={self.p}{options}"


# The layers that are replaced: whether they drop channels, and whether they are for SELU.
REPLACED: dict[type[torch_dropout._DropoutNd], tuple[bool, bool]] = {
    nn.Dropout: (False, False),
    nn.Dropout1d: (True, False),
    nn.Dropout2d: (True, False),
    nn.Dropout3d: (True, False),
    nn.AlphaDropout: (False, True),
    nn.FeatureAlphaDropout: (True, True),
}


def keyed(module: nn.Module) -> nn.Module:
    """A copy of a module whose dropout is keyed by sample instead of drawn from a hidden stream.

    Replaces `nn.Dropout` and its variants, and the dropout of `nn.MultiheadAttention`, also inside
    of `nn.TransformerEncoderLayer` and others. `Task` does this by itself. In a pass
    without keys, as in evaluation, nothing is dropped.

    Args:
        module: Any module; it is not changed.

    Raises:
        Misuse: If a layer has dropout that cannot be keyed.

    Example:
        >>> import tacit
        >>> from torch import nn
        >>> tacit.models.keyed(nn.Sequential(nn.Linear(4, 2), nn.Dropout(0.1)))[1]
        KeyedDropout(p=0.1)
    """
    return use_keys(copied(module))[0]


def use_keys(module: nn.Module) -> tuple[nn.Module, MaskKeys | None]:
    """The module itself with keyed dropout in it, and its keys; None if it has no dropout."""
    keys = MaskKeys()
    layers = []

    def keyed_layer(layer: nn.Module) -> nn.Module | None:
        if (new := _keyed_layer(layer, keys)) is not None:
            layers.append(new)
        return new

    changed = replace_layers(module, keyed_layer)
    return changed, keys if layers else None


def without_keys(module: nn.Module) -> nn.Module:
    """The module itself with torch's own dropout in the place of keyed dropout.

    Attention with low-rank adapters keeps its keyed dropout, which drops nothing without keys.
    """
    for layer in list(module.modules()):
        if isinstance(layer, PlainAttention) and layer.adapter is None:
            layer.become_usual()
        # With repetitions: one layer may have several names.
        for name, child in list(layer._modules.items()):
            if isinstance(child, KeyedDropout):
                setattr(layer, name, _usual(child))
    return _usual(module) if isinstance(module, KeyedDropout) else module


def _usual(layer: KeyedDropout) -> nn.Module:
    return layer.usual(layer.p, layer.inplace)


def _keyed_layer(layer: nn.Module, keys: MaskKeys) -> nn.Module | None:
    """The layer with keyed dropout; None if it has no dropout."""
    if isinstance(layer, nn.MultiheadAttention) and layer.dropout > 0:
        layer = PlainAttention.of(layer)
    if isinstance(layer, KeyedDropout) or (isinstance(layer, PlainAttention) and layer.p > 0):
        # All layers of a module share its keys, so that no two draw the same mask.
        layer.keys = keys
        return layer
    if isinstance(layer, nn.RNNBase) and layer.dropout > 0 and layer.num_layers > 1:
        raise Misuse(
            f"The model has a {type(layer).__name__} with dropout = {layer.dropout}, which is "
            "drawn from a hidden random stream between its layers.",
            "Use one layer each with nn.Dropout between them, or set dropout = 0.",
        )
    if not isinstance(layer, torch_dropout._DropoutNd) or layer.p == 0:
        return None
    for kind, (by_channel, alpha) in REPLACED.items():
        if isinstance(layer, kind) and type(layer).forward is kind.forward:
            return KeyedDropout(layer.p, keys, by_channel, alpha, kind, layer.inplace)
    raise Misuse(
        f"The model has a {type(layer).__name__} with p = {layer.p}, which draws from a hidden "
        "random stream.",
        "Use nn.Dropout, nn.Dropout1d to 3d or nn.AlphaDropout, or set p = 0.",
    )


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
