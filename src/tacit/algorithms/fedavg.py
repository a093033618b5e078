"""FedAvg: the centralized reference, for comparing what a server sees with what neighbours see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.diffusion import ModelState
from tacit.algorithms.tracking import check_local_steps
from tacit.core.here import Here
from tacit.core.schedules import Rate, check_rate


@dataclass(frozen=True)
class FedAvg(Algorithm):
    """Federated averaging of gradients by a server (Yu et al. 2025, eq. 1; McMahan et al. 2017).

    w⁺ = w − (μ/n) Σᵢ ∇fᵢ(w)

    Each gradient goes to the server, where the server and an eavesdropper see it. First models are averaged there
    too. With `local_steps` > 1 clients descend that often on their own and send the sum of their gradients.
    """

    name: ClassVar[str] = "fedavg"
    paper: ClassVar[str] = "McMahan et al. 2017; Yu et al. 2025, eq. 1"
    requires: ClassVar[tuple[str, ...]] = ()
    needs_server: ClassVar[bool] = True
    protects: ClassVar[str] = (
        "nothing: a server, which the graph does not show, sees every gradient"
    )

    lr: Rate  # μ
    local_steps: int = 1

    def __post_init__(self) -> None:
        check_rate("lr", self.lr)
        check_local_steps(self.local_steps)

    @property
    def gradients_per_step(self) -> int:
        return self.local_steps

    def start(self, here: Here) -> ModelState:
        """One first model for all."""
        (theta,) = here.net.average(theta=here.theta0)
        return ModelState(theta)

    def step(self, s: ModelState, here: Here) -> ModelState:
        """Gradients up, their mean down."""
        rate = here.rate(self.lr)
        total = here.grad(s.theta)
        for local in range(1, self.local_steps):
            total = total + here.grad(s.theta - rate * total, local)
        (mean,) = here.net.average(grad=total)
        return ModelState(s.theta - rate * mean)
