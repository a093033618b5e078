"""Which numbers of a neighbour a node accepts.

One message with numbers near the largest of their type would turn the state of its receiver into
infinity or NaN, and then that of the whole federation. Honest nodes run the same algorithm from the
same start, so their numbers have similar sizes. A node accepts whatever is below `ALWAYS_ACCEPTED`,
which is large for a model and far from an overflow. Beyond that, for tasks with large units or
large masks, it accepts `FACTOR` times its own largest number.

This prevents overflows, not bad models: smaller wrong numbers are accepted. It does not apply to
masked sums, whose integers are uniform.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from tacit.peer.wire.messages import Rejected, Tensors

ALWAYS_ACCEPTED = 1e6
FACTOR = 1e3


def largest(rows: Tensor) -> float:
    """The largest magnitude; 0 for integers and without numbers, NaN or infinity if one is."""
    if not rows.is_floating_point() or not rows.numel():
        return 0.0
    low, high = torch.aminmax(rows)
    return max(-float(low), float(high))


def is_finite(rows: Tensor) -> bool:
    """Whether no number is NaN or infinite."""
    return math.isfinite(largest(rows))


def largest_of_each(messages: Iterable[Tensors]) -> dict[str, float]:
    """The largest magnitude of each tag in a node's own messages."""
    found: dict[str, float] = {}
    for tensors in messages:
        for tag, rows in tensors.items():
            value, most = largest(rows), found.get(tag, 0.0)
            # NaN is kept: it is larger than nothing, and nothing is larger.
            found[tag] = most if math.isnan(most) else max(value, most)
    return found


def check_values(tensors: Tensors, own: Mapping[str, float]) -> float:
    """The largest magnitude in a neighbour's message; raise Rejected if it is not plausible.

    Args:
        tensors: The message.
        own: The largest magnitude of each tag in this node's own messages.
    """
    most = 0.0
    for tag, rows in tensors.items():
        value, ours = largest(rows), own.get(tag, 0.0)
        if not math.isfinite(value):
            raise Rejected("not finite", f"{tag} holds NaN or infinity")
        if value > max(ALWAYS_ACCEPTED, FACTOR * ours):
            raise Rejected(
                "too large",
                f"{tag} holds {value:.3g}: more than {ALWAYS_ACCEPTED:.0e}, and more than "
                f"{FACTOR:,.0f} times the largest number of this node, {ours:.3g}",
            )
        most = max(most, value)
    return most
