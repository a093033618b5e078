"""Dropout of a chain of layers, with the masks of `tacit.models.dropout`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from tacit.models.mask_keys import MaskKeys
from tacit.tasks.layers.basic import WeightlessLayer


@dataclass(frozen=True)
class Dropout(WeightlessLayer):
    """Multiplies by zeros and 1/(1 − p); saves what it multiplied by.

    In the place of weights it takes the keys of the samples, [k, B].

    Attributes:
        p: The probability with which a number, or a channel, is dropped.
        number: How many dropout layers there are before it.
        by_channel: Whether whole channels of images are dropped.
    """

    p: float
    number: int
    by_channel: bool

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        features = tuple(x.shape[1:-1])
        if self.by_channel:
            features = (features[0], *(1 for _ in features[1:]))
        rows = MaskKeys(weights.flatten(), self.number)
        like = x.new_empty(()).expand(weights.numel(), math.prod(features))
        factors = rows.factors(like, self.p).reshape(*weights.shape, *features).movedim(1, -1)
        return x * factors, factors

    def input_gradient(self, saved: Tensor, dy: Tensor) -> Tensor:
        return dy * saved
