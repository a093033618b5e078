"""What a layer is: forward and backward of k clients, each with its own weights.

The batch is the last dimension everywhere, images [k, C, H, W, B] and vectors [k, D, B]. So every product is
"weights times columns" with long rows, windows of an image are runs of W·B numbers that lie side by side, and
nothing is transposed between layers. Gradients of weights are written where they belong in the rows of all
clients; there is no tape, and nothing is put together afterwards.
"""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor


class Layer(Protocol):
    """One layer of a network."""

    @property
    def width(self) -> int:
        """How many weights one client has here."""
        ...

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, Any]:
        """The output for `weights` [k, width], and what `backward` needs of it."""
        ...

    def backward(
        self, weights: Tensor, kept: Any, dy: Tensor, gradient: Tensor, further: bool
    ) -> Tensor | None:
        """Write the gradient of the weights into `gradient` [k, width]; give that of the input if it goes `further`.

        `dy`, the gradient of the output, is this layer's to write into.
        """
        ...
