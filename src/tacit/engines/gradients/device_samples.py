"""Drawn samples in a fixed place of a device, so that the work on them can be captured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tacit.core.devices import to_device
from tacit.tasks.poisson import PoissonSample

# Sizes of passes are multiples of this, unless fewer samples fit into one.
GRAIN = 64


@dataclass(frozen=True, eq=False)
class DeviceSample:
    """Samples in passes of a fixed size, which need not be full.

    With a common model, a pass takes the samples of all n clients one after the other. Otherwise it
    takes those of one client. What is too much for one pass is in the next.

    Attributes:
        packed: Per pass the indices of its samples, padded with zeros, the bounds of the clients
            in it, and the number of the gradient, int64 [passes, size + rows + 2].
        size: Samples that a pass takes.
        clients: Number of clients n.
        shared: Whether all clients have the same model.
    """

    packed: Tensor
    size: int
    clients: int
    shared: bool

    @classmethod
    def of(
        cls, sample: PoissonSample, shared: bool, largest: int, device: torch.device | str
    ) -> DeviceSample:
        """A place for this sample and almost all others that are drawn alike; holds this one.

        Args:
            sample: What it holds first.
            shared: Whether all clients have the same model.
            largest: Samples that fit into one pass, at least one.
            device: Where it is.
        """
        clients = len(sample.counts)
        drawn = len(sample.index) if shared else int(sample.counts.max())
        usual = sample.capacity if shared else sample.client_capacity
        # Public: it does not depend on the samples that were drawn.
        size = min(GRAIN * max(1, -(-usual // GRAIN)), _rounded_down(largest))
        passes = max(1, -(-max(drawn, usual) // size)) * (1 if shared else clients)
        rows = clients if shared else 1
        packed = torch.zeros(passes, size + rows + 2, dtype=torch.int64, device=device)
        place = cls(packed, size, clients, shared)
        place.load(sample)
        return place

    def load(self, sample: PoissonSample) -> bool:
        """Replace the samples, without waiting for a GPU; False and no change if too many."""
        steps = len(self.packed) if self.shared else len(self.packed) // self.clients
        drawn = len(sample.index) if self.shared else int(sample.counts.max())
        if drawn > steps * self.size:
            return False
        packed = np.zeros(self.packed.shape, dtype=np.int64)
        index, bounds = sample.index.numpy(), sample.bounds.numpy()
        owners = [bounds] if self.shared else [bounds[i : i + 2] for i in range(self.clients)]
        for owner, own in enumerate(owners):
            for step in range(steps):
                row, first = packed[owner * steps + step], own[0] + step * self.size
                some = index[first : min(first + self.size, own[-1])]
                row[: len(some)] = some
                row[self.size : -1] = np.clip(own - first, 0, self.size)
                row[-1] = sample.number
        self.packed.copy_(to_device(torch.from_numpy(packed), self.packed.device))
        return True

    def passes(self) -> Iterator[tuple[slice, int, Tensor]]:
        """The clients of each pass, its number among theirs, and its row of `packed`."""
        steps = len(self.packed) if self.shared else len(self.packed) // self.clients
        for number, row in enumerate(self.packed):
            owner, step = divmod(number, steps)
            yield slice(0, self.clients) if self.shared else slice(owner, owner + 1), step, row


def _rounded_down(largest: int) -> int:
    """The largest multiple of GRAIN that fits, or all that fits."""
    return largest // GRAIN * GRAIN or largest
