"""The keys that the masks of dropout follow from.

Mask element e of draw l for a sample with key k is word e of the key fold(k, l): see
`tacit.core.sample_keys`. A sample's mask does not depend on the rest of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tacit.core.errors import Misuse
from tacit.core.sample_keys import fold, words

# Draws of augmentation come first.
FIRST_DRAW = 1


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
        for number, (first, second) in enumerate(zip(two, three, strict=True)):
            sizes = list(zip(first, second, strict=False))
            grows = [dim for dim, (a, b) in enumerate(sizes) if a and 3 * a == 2 * b]
            if not grows:
                raise Misuse(
                    f"Dropout number {number + 1} of the model sees {tuple(first)} for two samples "
                    f"and {tuple(second)} for three: no dimension counts the samples.",
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
        rest = [size for axis, size in enumerate(shape) if axis != dim]
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
