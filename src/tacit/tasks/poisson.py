"""Poisson sampling: each sample of each client is included independently with probability q."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from tacit.core.checks import check_number
from tacit.tasks.parts import Parts

# Ids of k clients and a width → uniform 32-bit words [k, width] as int64, such as
# `lambda ids, width: randomness.words(tag, tick, ids, width)`.
DrawWords = Callable[[Tensor, int], Tensor]
# Words drawn at a time.
TILE = 1 << 22
# A draw exceeds its expected size by this many standard deviations in 3 of 100,000 cases.
DEVIATIONS = 4


@dataclass(frozen=True, eq=False)
class PoissonSample:
    """The samples that hosted clients have drawn, on the host.

    Attributes:
        index: Positions in the shared arrays of `Parts`, int64 [S], client after client.
        counts: How many of them belong to each hosted client, int64 [n].
        sizes: How many samples each hosted client has, int64 [n].
        rate: The probability with which each of them was drawn.
        number: The number of the gradient, which keys what else is drawn for the samples.
    """

    index: Tensor
    counts: Tensor
    sizes: Tensor
    rate: float
    number: int = 0

    @cached_property
    def bounds(self) -> Tensor:
        """Client i has samples `bounds[i]` to `bounds[i + 1]` of the index, int64 [n + 1]."""
        return torch.cat((self.counts.new_zeros(1), self.counts.cumsum(0)))

    @cached_property
    def capacity(self) -> int:
        """A size that almost all draws of all clients fit into, to reserve memory."""
        return capacity(int(self.sizes.sum()), self.rate, DEVIATIONS)

    @cached_property
    def client_capacity(self) -> int:
        """A size that almost all draws of one client fit into."""
        return capacity(int(self.sizes.max()), self.rate, DEVIATIONS)


@dataclass(frozen=True, eq=False)
class PoissonSampler:
    """Draws samples of hosted clients.

    Attributes:
        order: Positions in the shared arrays, grouped by client, int64 [samples].
        first: Where each hosted client's positions begin in `order`, [n].
        sizes: How many samples each hosted client has, [n].
        ids: Permanent ids of the hosted clients, [n].
    """

    order: Tensor
    first: Tensor
    sizes: Tensor
    ids: Tensor

    @classmethod
    def of(cls, parts: Parts, ids: Tensor, positions: Tensor) -> PoissonSampler:
        """The sampler of the clients `ids`, whose data are at these positions of the parts."""
        positions = positions.cpu()
        return cls(parts.order, parts.offsets[positions], parts.sizes[positions], ids.cpu())

    def draw(self, rate: float, words: DrawWords) -> PoissonSample:
        """Include sample j of a client if its word j is less than ⌊q·2³²⌋.

        Whether a sample is included depends on its client's words only, not on who else is hosted.

        Args:
            rate: The probability q, above 0 and at most 1.
            words: Draws the clients' words.

        Raises:
            Misuse: If the rate is not a probability above 0.
        """
        check_number("The sampling rate", rate, above=0, at_most=1, example=0.01)
        threshold = math.floor(rate * 2**32)
        drawn = []
        for group in self._groups:
            width = int(group.sizes.max())
            drawn.append(group.chosen(words(group.ids, width).cpu(), threshold))
        index, counts = drawn[0]
        if len(drawn) > 1:
            places = torch.cat([group.clients for group in self._groups])
            counts = torch.cat([part for _, part in drawn])
            order = places.repeat_interleave(counts).argsort(stable=True)
            index = torch.cat([part for part, _ in drawn])[order]
            counts = torch.zeros_like(counts).index_copy_(0, places, counts)
        return PoissonSample(index, counts, self.sizes, rate)

    @cached_property
    def _groups(self) -> list[Group]:
        """Clients of about the same size, so that at most every second word is not needed."""
        octave = np.array([size.bit_length() for size in self.sizes.tolist()])
        groups = []
        for length in np.unique(octave).tolist():
            clients = torch.from_numpy(np.flatnonzero(octave == length))
            # Some clients at a time: the words of all may not fit into memory.
            for some in torch.split(clients, max(1, TILE >> length)):
                numbers = (self.ids[some], self.first[some], self.sizes[some])
                groups.append(Group(some, *numbers, self.order))
        return groups


@dataclass(frozen=True, eq=False)
class Group:
    """Hosted clients that draw together; see `PoissonSampler`.

    Attributes:
        clients: Their places among all hosted clients, [k].
        ids: Their permanent ids, [k].
        first: Where each one's positions begin in `order`, [k].
        sizes: How many samples each has, [k].
        order: Positions in the shared arrays.
    """

    clients: Tensor
    ids: Tensor
    first: Tensor
    sizes: Tensor
    order: Tensor

    def chosen(self, words: Tensor, threshold: int) -> tuple[Tensor, Tensor]:
        """Positions of the samples with words below the threshold, and their number per client."""
        clients, width = words.shape
        # In NumPy, which takes less than half the time of torch: a step on a GPU waits for it.
        below = words.numpy() < threshold
        if int(self.sizes.min()) < width:
            below &= np.arange(width) < self.sizes.numpy()[:, None]
        places = np.flatnonzero(below)
        begins = np.arange(clients + 1) * width
        counts = np.diff(np.searchsorted(places, begins))
        in_order = places + np.repeat(self.first.numpy() - begins[:-1], counts)
        return self.order[torch.from_numpy(in_order)], torch.from_numpy(counts)


def capacity(samples: int, rate: float, deviations: float) -> int:
    """The expected size of a draw and so many standard deviations more."""
    spread = math.sqrt(rate * (1 - rate) * samples)
    return min(samples, math.ceil(rate * samples + deviations * spread))
