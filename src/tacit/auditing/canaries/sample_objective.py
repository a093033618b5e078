"""Canaries that are samples: drawn, clipped and summed by the code that trains.

The victim of copy r has one sample x with the loss ⟨θ, x⟩, so that its gradient is x. If the coin
of the copy is heads, x = 10 C uᵣ, with the clipping bound C and a direction uᵣ of length one; else
x is zero, which is as good as no sample. Other clients have none. Sums of clipped gradients are
those of the simulator: if samples are drawn too often, or are not clipped, canaries show it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from tacit.auditing.canaries.copies import random_directions
from tacit.core.hosted_clients import Sampling
from tacit.core.rows import shared
from tacit.engines.gradients.objective import HostedObjective
from tacit.privacy.clipping import Clip
from tacit.tasks.parts import Parts
from tacit.tasks.task import Task

# Norm of a canary before clipping, over the clipping bound.
TOO_LONG = 10.0


def inner_product(theta: Tensor, x: Tensor) -> Tensor:
    """The mean of ⟨θ, x⟩ over a batch [b, P]."""
    return (x @ theta).mean()


@dataclass(frozen=True, eq=False)
class SampleObjective:
    """An objective with a canary among the victim's data, or without, in every copy.

    Attributes:
        coins: Whether the canary is there, bool [copies].
        directions: The direction of each copy's canary, [copies, P].
        clients: The number of clients in a copy.
        victim: The client of a copy that has the canary or not.
        sums: Draws, clips and sums the samples of the victims of all copies.
        dtype: Of models and gradients.
        device: Where they live.
    """

    coins: Tensor
    directions: Tensor
    clients: int
    victim: int
    sums: HostedObjective
    dtype: torch.dtype
    device: torch.device | str = "cpu"

    @classmethod
    def random(
        cls,
        copies: int,
        clients: int,
        victim: int,
        width: int,
        bound: float,
        seed: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ) -> SampleObjective:
        """Fair coins and random directions.

        Args:
            copies: How many copies there are.
            clients: The number of clients in a copy.
            victim: The client of a copy that has the canary or not.
            width: P, the coordinates of a canary.
            bound: The clipping bound C.
            seed: Keys coins and directions.
            dtype: Of models and gradients.
            device: Where they live.
        """
        coins = torch.as_tensor(np.random.default_rng((seed, 0)).random(copies) < 0.5)
        directions = random_directions(copies, width, Clip(bound), seed)
        samples = (coins[:, None] * TOO_LONG * bound * directions).to(dtype)
        parts = Parts((samples,), torch.arange(copies), torch.arange(copies + 1))
        start = torch.zeros(width, dtype=dtype)
        task = replace(Task.from_loss(inner_product, [samples[:1]], start, 1), parts=parts)
        victims = range(copies)
        loader = task.loader(torch.as_tensor(victims), 0, device)
        sums = HostedObjective(task, victims, loader, "batched", 0, device)
        return cls(coins, directions, clients, victim, sums, dtype, device)

    def theta0(self) -> Tensor:
        shape = len(self.coins) * self.clients, self.directions.shape[1]
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def clipped_sum(
        self, theta: Tensor, sampling: Sampling, number: int, out: Tensor | None = None
    ) -> Tensor:
        def draw(copies: Tensor, width: int) -> Tensor:
            return sampling.draw(self.clients * copies + self.victim, width)

        # Gradients do not depend on models, and those of one model take less time.
        model = shared(theta[:1], len(self.coins))
        own = self.sums.clipped_sum(model, replace(sampling, draw=draw), number)
        out = torch.empty_like(theta) if out is None else out
        out.zero_()[self.victim :: self.clients] = own
        return out

    def grad(self, theta: Tensor, number: int, out: Tensor | None = None) -> Tensor:
        raise NotImplementedError("these canaries are for sums over samples")

    def minimise(self, linear: Tensor, curvature: Tensor, number: int) -> Tensor:
        raise NotImplementedError("these canaries are for sums over samples")
