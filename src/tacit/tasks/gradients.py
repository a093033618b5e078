"""Gradients of all hosted clients: in one batched pass, or client by client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.func import grad, vmap

from tacit.tasks.feed import Feed
from tacit.tasks.flat import Loss
from tacit.tasks.parts import Part
from tacit.tasks.task import Task

Strategy = Literal["batched", "looped"]
WORKSPACE = 1 << 26  # numbers a batched pass may take, roughly


def batched(loss: Loss, theta: Tensor, arrays: Part) -> Tensor:
    """Gradients [k, P] in one pass over a client dimension."""
    gradients: Tensor = vmap(grad(loss))(theta, *arrays)
    return gradients


def looped(loss: Loss, theta: Tensor, arrays: Part) -> Tensor:
    """Gradients [k, P] client by client: slow and obviously right."""
    out = torch.empty_like(theta)
    for row, own in enumerate(zip(*arrays, strict=True)):
        point = theta[row].detach().requires_grad_()
        (out[row],) = torch.autograd.grad(loss(point, *own), point)
    return out


PASSES: dict[Strategy, Callable[[Loss, Tensor, Part], Tensor]] = {"batched": batched, "looped": looped}


def clients_per_pass(task: Task) -> int:
    """Clients per batched pass, so that its workspace stays bounded."""
    return max(1, WORKSPACE // (4 * task.parameters + 16 * task.source.numbers))


@dataclass(frozen=True, eq=False)
class HostedObjective:
    """The objective of hosted clients (see clients.Objective), bound to data, seed and device."""

    task: Task
    clients: Sequence[int]
    feed: Feed
    strategy: Strategy
    seed: int
    device: torch.device | str

    def theta0(self) -> Tensor:
        """Initial models [n, P]."""
        return self.task.initial(self.seed, self.clients).to(self.device)

    def grad(self, theta: Tensor, number: int) -> Tensor:
        """Gradients [n, P] of each client's batch `number` at its own row."""
        compute = PASSES[self.strategy]
        out = torch.empty_like(theta)
        for rows, arrays in self.feed.groups(number, clients_per_pass(self.task)):
            out[rows] = compute(self.task.loss, theta[rows], arrays)
        return out if self.task.clip is None else self.task.clip.rows(out)

    def minimise(self, linear: Tensor, curvature: Tensor, number: int) -> Tensor:
        """The argmin of fᵢ(w) + linearᵢᵀw + curvatureᵢ/2 ‖w‖² [n, P], for b [n, P] and c [n, 1]."""
        proximal = self.task.known_minimisers()
        out = torch.empty_like(linear)
        for rows, arrays in self.feed.groups(number, clients_per_pass(self.task)):
            out[rows] = vmap(proximal)(linear[rows], curvature[rows, 0], *arrays)
        return out
