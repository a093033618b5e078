"""An algorithm whose message a test writes."""

from dataclasses import dataclass

import torch

from tacit.algorithms.algorithm import Algorithm


@dataclass(frozen=True)
class State:
    theta: torch.Tensor


@dataclass(frozen=True)
class Written(Algorithm):
    """Diffusion that sends what a function makes of model, gradient and `here`."""

    sent: object
    name = "written"

    def start(self, here) -> State:
        return State(here.theta0)

    def step(self, s, here):
        (mixed,) = here.net.mix(psi=self.sent(s.theta, here.grad(s.theta), here))
        return State(mixed)
