"""Canaries in place of data, in many copies of a graph at once: one coin for each copy.

Client canaries are gradients. Client i of copy r gets

    gᵢ⁽ᵏ⁾ = cᵣᵢ sₖ C uᵣ

with a coin cᵣᵢ = ±1, a sign sₖ for the k-th gradient of every client, the clipping bound C, and a
direction uᵣ of length one.

Sample canaries are drawn, clipped and summed by the code that trains. The victim of copy r has one
sample x with the loss ⟨θ, x⟩, so that its gradient is x. If the coin of the copy is heads,
x = 10 C uᵣ; else x is zero, which is as good as no sample. Other clients have none. If samples are
drawn too often, or are not clipped, canaries show it.

First models are zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from tacit.core.hosted_clients import Sampling
from tacit.core.rows import shared
from tacit.engines.gradients.objective import HostedObjective
from tacit.privacy.clipping import Clip
from tacit.tasks.parts import Parts
from tacit.tasks.task import Task

# Norm of a sample's gradient before clipping, over the clipping bound.
TOO_LONG = 10.0


@dataclass(frozen=True, eq=False)
class Canaries:
    """An objective with canaries in place of data.

    Attributes:
        coins: One of each copy [copies, ...].
        directions: The direction of each copy, [copies, P].
        clients: The number of clients in a copy.
        dtype: Of models and gradients.
        device: Where they live.
    """

    coins: Tensor
    directions: Tensor
    clients: int
    dtype: torch.dtype
    device: torch.device | str

    def theta0(self) -> Tensor:
        shape = len(self.coins) * self.clients, self.directions.shape[1]
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def grad(self, theta: Tensor, number: int, out: Tensor | None = None) -> Tensor:
        raise NotImplementedError("these canaries are for sums over samples")

    def clipped_sum(
        self, theta: Tensor, sampling: Sampling, number: int, out: Tensor | None = None
    ) -> Tensor:
        raise NotImplementedError("these canaries are gradients of batches")

    def minimise(self, linear: Tensor, curvature: Tensor, number: int) -> Tensor:
        # Where the gradient is g, ∇f(w) + b + cw = 0.
        return -(self.grad(linear, number) + linear) / curvature


@dataclass(frozen=True, eq=False)
class GradientCanaries(Canaries):
    """Gradients that are canaries, whatever the models are; coins are ±1 of each client.

    Attributes:
        signs: The sign of each gradient by the number of its batch; 1 where there is none.
        clip: Gives the length of canaries.
    """

    signs: Mapping[int, float]
    clip: Clip

    def grad(self, theta: Tensor, number: int, out: Tensor | None = None) -> Tensor:
        size = self.signs.get(number, 1.0) * self.clip.bound
        rows = self.coins[:, :, None] * (size * self.directions)[:, None, :]
        rows = rows.reshape(theta.shape).to(self.device, self.dtype)
        # As every gradient: rounding must not make it longer than the bound.
        rows = self.clip.clip_(rows)
        return rows if out is None else out.copy_(rows)


@dataclass(frozen=True, eq=False)
class SampleCanaries(Canaries):
    """A canary among the victim's data, or none, in every copy: coins are bool [copies].

    Attributes:
        victim: The client of a copy that has the canary or not.
        sums: Draws, clips and sums the samples of the victims of all copies.
    """

    victim: int
    sums: HostedObjective

    def clipped_sum(
        self, theta: Tensor, sampling: Sampling, number: int, out: Tensor | None = None
    ) -> Tensor:
        def draw(copies: Tensor, width: int) -> Tensor:
            return sampling.draw(self.clients * copies + self.victim, width)

        # Gradients do not depend on models, and those of one model take less time.
        model = shared(theta[:1], len(self.coins))
        of_victims = self.sums.clipped_sum(model, replace(sampling, draw=draw), number)
        out = torch.empty_like(theta) if out is None else out
        out.zero_()[self.victim :: self.clients] = of_victims
        return out


def random_gradients(
    copies: int,
    clients: int,
    width: int,
    clip: Clip,
    signs: Mapping[int, float],
    seed: int,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
) -> GradientCanaries:
    """Client canaries with fair coins [copies, clients] and random directions [copies, width]."""
    coins = np.random.default_rng((seed, 0)).choice((-1.0, 1.0), (copies, clients))
    directions = random_directions(copies, width, clip, seed)
    return GradientCanaries(torch.as_tensor(coins), directions, clients, dtype, device, signs, clip)


def random_samples(
    copies: int,
    clients: int,
    victim: int,
    width: int,
    bound: float,
    seed: int,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
) -> SampleCanaries:
    """Sample canaries of the clipping bound C with fair coins [copies] and random directions."""
    coins = torch.as_tensor(np.random.default_rng((seed, 0)).random(copies) < 0.5)
    directions = random_directions(copies, width, Clip(bound), seed)
    samples = (coins[:, None] * TOO_LONG * bound * directions).to(dtype)
    parts = Parts((samples,), torch.arange(copies), torch.arange(copies + 1))
    start = torch.zeros(width, dtype=dtype)
    task = replace(Task(start, [samples[:1]], loss=inner_product, batch_size=1), parts=parts)
    loader = task.loader(torch.arange(copies), 0, device)
    sums = HostedObjective(task, range(copies), loader, "stacked", 0, device)
    return SampleCanaries(coins, directions, clients, dtype, device, victim, sums)


def random_directions(copies: int, width: int, clip: Clip, seed: int) -> Tensor:
    """Directions u [copies, width], each of length one in the norm of the clip.

    An L1 ball reaches farthest in one coordinate, so there u is a coordinate's unit vector.
    """
    rng = np.random.default_rng((seed, 1))
    if clip.norm == "l1":
        rows = np.zeros((copies, width))
        rows[np.arange(copies), rng.integers(width, size=copies)] = rng.choice((-1.0, 1.0), copies)
    else:
        rows = rng.normal(size=(copies, width))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return torch.as_tensor(rows)


def inner_product(theta: Tensor, x: Tensor) -> Tensor:
    """The mean of ⟨θ, x⟩ over a batch [b, P]."""
    return (x @ theta).mean()
