"""Algorithms whose steps or messages a test writes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.diffusion import ModelState


@dataclass(frozen=True)
class FromFirstModels(Algorithm):
    """An algorithm whose state is a model, at first the initial one."""

    def start(self, here) -> ModelState:
        return ModelState(here.theta0)


@dataclass(frozen=True)
class Two:
    """A state with a field beside the model."""

    theta: torch.Tensor
    extra: torch.Tensor


@dataclass(frozen=True)
class WithZeros(Algorithm):
    """An algorithm with such a state, at first zeros."""

    def start(self, here) -> Two:
        return Two(here.theta0, 0.0 * here.theta0)


@dataclass(frozen=True)
class Rule(FromFirstModels):
    """An algorithm of one step function, which returns the new state or nothing."""

    does: Callable[..., Any]
    name: ClassVar[str] = "rule"

    def step(self, s, here) -> ModelState:
        return self.does(s, here) or s


@dataclass(frozen=True)
class Written(FromFirstModels):
    """Diffusion that sends what a function makes of model, gradient and `here`."""

    sent: object
    name = "written"

    def step(self, s, here):
        (mixed,) = here.net.mix(psi=self.sent(s.theta, here.grad(s.theta), here))
        return ModelState(mixed)
