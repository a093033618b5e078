"""The protocol of a layer: forward and backward passes of k clients with different weights.

The batch is the last dimension everywhere: images [k, C, H, W, B] and vectors [k, D, B]. So every
product is "weights times columns" with long rows, windows of an image are contiguous runs of W·B
numbers, and nothing is transposed between layers. Layers write the gradients of their weights
directly into the rows of all clients, without an autograd tape.
"""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor


class Layer(Protocol):
    """One layer of a network."""

    @property
    def width(self) -> int:
        """Number of weights of one client."""
        ...

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, Any]:
        """The output for `weights` [k, width], and what `backward` needs."""
        ...

    def backward(
        self, weights: Tensor, saved: Any, dy: Tensor, gradient: Tensor, needs_dx: bool
    ) -> Tensor | None:
        """Write the gradient of the weights and return that of the input.

        Args:
            weights: As in `forward`.
            saved: What `forward` returned.
            dy: Gradient of the output. The layer may overwrite it.
            gradient: Where the gradient of the weights goes, [k, width].
            needs_dx: Whether the gradient of the input is needed; if not, returns None.
        """
        ...
