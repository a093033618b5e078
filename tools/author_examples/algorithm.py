"""An algorithm: clients agree on the average of their initial models."""

from dataclasses import dataclass

import torch

import tacit


@dataclass(frozen=True)
class Models:
    theta: torch.Tensor


@dataclass(frozen=True)
class Gossip(tacit.Algorithm):
    name = "gossip"

    def start(self, here) -> Models:
        return Models(here.theta0)

    def step(self, s, here):
        (theta,) = here.net.mix(theta=s.theta)
        return Models(theta)


firsts = torch.tensor([[0.0], [3.0], [6.0]])
task = tacit.Task(firsts, [torch.zeros(1)] * 3, loss=lambda theta, x: 0 * theta[0])
run = tacit.run(task, Gossip(), steps=30)
result = torch.allclose(run.theta, torch.tensor(3.0))
