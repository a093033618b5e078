"""Dropout whose masks follow from the keys of the samples, in place of a hidden random stream.

Mask element e of draw l for a sample with key k is word e of the key fold(k, l): see
`tacit.core.sample_keys`. A sample's mask does not depend on the rest of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.modules import dropout as torch_dropout

from tacit.core.errors import Misuse
from tacit.core.sample_keys import fold, words
from tacit.models.attention import PlainAttention
from tacit.models.parameters import copied, replace_layers

# Draws of augmentation come first.
FIRST_DRAW = 1
# What AlphaDropout sets dropped numbers to: −λα of SELU.
ALPHA = -1.7580993408473766


@dataclass(eq=False)
class MaskKeys:
    """The keys of the samples in the current pass, which all layers of one module share.

    Attributes:
        keys: A key per sample, [B]; None: there is no dropout, as in evaluation.
        drawn: How many masks the pass has drawn.
        batch_dims: The dimension of the samples at each draw, where it is not the first.
    """

    keys: Tensor | None = None
    drawn: int = 0
    batch_dims: dict[int, int] = field(default_factory=dict)
    # The shapes at the draws of a pass, while they are recorded.
    _shapes: list[torch.Size] | None = None

    @contextmanager
    def used(self, keys: Tensor | None) -> Iterator[None]:
        """A pass over samples with these keys."""
        before = self.keys, self.drawn
        self.keys, self.drawn = keys, 0
        try:
            yield
        finally:
            self.keys, self.drawn = before

    @contextmanager
    def recorded(self) -> Iterator[list[torch.Size]]:
        """A context in which the shapes of what is masked are noted."""
        self._shapes = []
        try:
            yield self._shapes
        finally:
            self._shapes = None

    def find_batch_dims(self, two: Sequence[torch.Size], three: Sequence[torch.Size]) -> None:
        """Find the dimension of the samples from recorded passes over two and over three samples.

        Raises:
            Misuse: If a draw has no such dimension.
        """
        self.batch_dims = {}
        if len(two) != len(three):
            raise Misuse(
                f"The model draws {len(two)} masks for two samples and {len(three)} for three.",
                "Apply dropout as often for every number of samples, or set p = 0.",
            )
        for number, (one, other) in enumerate(zip(two, three, strict=True)):
            sizes = list(zip(one, other, strict=False))
            grows = [dim for dim, (a, b) in enumerate(sizes) if a and 3 * a == 2 * b]
            if not grows:
                raise Misuse(
                    f"Dropout number {number + 1} of the model sees {tuple(one)} for two samples "
                    f"and {tuple(other)} for three: no dimension counts the samples.",
                    "Apply dropout to tensors with a dimension of samples, or set p = 0.",
                )
            if grows[0]:
                self.batch_dims[number] = grows[0]

    def keep(self, shape: torch.Size, p: float, by_channel: bool = False) -> Tensor:
        """Which numbers of a tensor are kept, each with probability 1 − p; bool.

        Args:
            shape: The shape of the tensor.
            p: The probability with which a number is dropped.
            by_channel: Whether whole channels are dropped, the dimension after the samples.

        Returns:
            A mask of this shape, or with ones in place of the dimensions of a channel.
        """
        assert self.keys is not None
        number, self.drawn = self.drawn, self.drawn + 1
        if self._shapes is not None:
            # The dimension of the samples is not known yet, and what is dropped does not matter.
            self._shapes.append(shape)
            return torch.ones(shape, dtype=torch.bool, device=self.keys.device)
        samples, dim = len(self.keys), self.batch_dims.get(number, 0)
        if len(shape) <= dim or shape[dim] % samples:
            raise Misuse(
                f"Dropout sees a tensor {tuple(shape)}, which does not divide into {samples} "
                "samples.",
                "Apply dropout to tensors with a dimension of samples, or set p = 0.",
            )
        rest = [size for place, size in enumerate(shape) if place != dim]
        if by_channel:
            rest = [*rest[:1], *(1 for _ in rest[1:])]
        # Several rows of a sample follow each other where the batch is flattened with others.
        count = shape[dim] // samples * math.prod(rest)
        drawn = words(fold(self.keys, FIRST_DRAW + number), count)
        least = math.floor(p * 2**32) - 2**31
        kept = drawn >= least if least < 2**31 else torch.zeros_like(drawn, dtype=torch.bool)
        return kept.reshape(shape[dim], *rest).movedim(0, dim)

    def factors(self, x: Tensor, p: float, by_channel: bool = False) -> Tensor:
        """What to multiply a tensor by: zero with probability p, and else 1/(1 − p)."""
        kept = self.keep(x.shape, p, by_channel).to(x.dtype)
        return kept * (0.0 if p == 1 else 1 / (1 - p))


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
    of `nn.TransformerEncoderLayer` and others. `Task.from_module` does this by itself. In a pass
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
    found = []

    def keyed_layer(layer: nn.Module) -> nn.Module | None:
        if (new := _keyed_layer(layer, keys)) is not None:
            found.append(new)
        return new

    changed = replace_layers(module, keyed_layer)
    return changed, keys if found else None


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
