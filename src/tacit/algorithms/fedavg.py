"""FedAvg: the centralized baseline, to compare what a server sees with what neighbours see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.diffusion import ModelState
from tacit.core.checks import check_count
from tacit.core.here import Here
from tacit.core.schedules import Rate, check_rate


@dataclass(frozen=True)
class FedAvg(Algorithm):
    """Federated averaging of gradients by a server (Yu et al. 2025, eq. 1; McMahan et al. 2017).

    w⁺ = w − (μ/n) Σᵢ ∇fᵢ(w)

    Clients send their gradients to the server, which also averages their initial models. The server
    and an eavesdropper see every message. With `local_steps` > 1 each client takes that many steps
    and sends the sum of its gradients.

    Args:
        lr: Step size μ, a number or a schedule.
        local_steps: Gradient steps between two messages.
    """

    name: ClassVar[str] = "fedavg"
    paper: ClassVar[str] = "McMahan et al. 2017; Yu et al. 2025, eq. 1"
    needs_server: ClassVar[bool] = True
    mixes: ClassVar[bool] = False
    protects: ClassVar[str] = "nothing: the server, which is not in the graph, sees every gradient"

    lr: Rate
    local_steps: int = 1

    def __post_init__(self) -> None:
        check_rate("lr", self.lr)
        check_count("local_steps", self.local_steps)

    @property
    def gradients_per_step(self) -> int:
        return self.local_steps

    def start(self, here: Here) -> ModelState:
        (theta,) = here.net.average(theta=here.theta0)
        return ModelState(theta)

    def step(self, s: ModelState, here: Here) -> ModelState:
        rate = here.rate(self.lr)
        total = here.grad(s.theta)
        for local in range(1, self.local_steps):
            total = total + here.grad(s.theta - rate * total, local)
        (mean,) = here.net.average(grad=total)
        return ModelState(s.theta - rate * mean)
