"""FedAvg: the centralized baseline, to compare what a server sees with what neighbours see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tacit.algorithms.local_optimizer import AdaptiveAlgorithm, OptimizerState
from tacit.algorithms.tolerance import Tolerance, refused
from tacit.core.checks import check_count
from tacit.core.here import Here


@dataclass(frozen=True)
class FedAvg(AdaptiveAlgorithm):
    """Federated averaging of gradients by a server (Yu et al. 2025, eq. 1; McMahan et al. 2017).

    w⁺ = w − (μ/n) Σᵢ ∇fᵢ(w)

    Clients send their gradients to the server, which also averages their initial models. The server
    and an eavesdropper see every message. With `local_steps` > 1 each client takes that many steps
    and sends the sum of its gradients. Momentum and Adam are those of the server (Hsu et al. 2019,
    Reddi et al. 2021): they use the mean only, and reveal nothing more.

    Args:
        lr: Step size μ, a number or a schedule.
        local_steps: Gradient steps between two messages.
        momentum: Momentum β in [0, 1) of the mean.
        nesterov: Nesterov's form of it.
        weight_decay: ω, for the objective f + (ω/2)‖w‖²; decoupled with "adamw".
        optimizer: "sgd", "adam" or "adamw" on the mean.
        betas: β₁ and β₂ of Adam.
    """

    name: ClassVar[str] = "fedavg"
    paper: ClassVar[str] = "McMahan et al. 2017; Yu et al. 2025, eq. 1"
    known_as: ClassVar[str] = "federated averaging, local SGD with a server"
    needs_server: ClassVar[bool] = True
    tolerates: ClassVar[Tolerance] = refused(
        "its messages go through a server, not over a graph, and all clients hold one model"
    )
    mixes: ClassVar[bool] = False
    protects: ClassVar[str] = "nothing: the server, which is not in the graph, sees every gradient"

    local_steps: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("local_steps", self.local_steps)

    @property
    def gradients_per_step(self) -> int:
        return self.local_steps

    def start(self, here: Here) -> OptimizerState:
        (theta,) = here.net.average(theta=here.theta0)
        return self.optimizer_state(theta)

    def step(self, s: OptimizerState, here: Here) -> OptimizerState:
        rate = here.rate(self.lr)
        total = self.local.gradient(s.theta, here)
        for local in range(1, self.local_steps):
            total = total + self.local.gradient(s.theta - rate * total, here, local)
        (mean,) = here.net.average(grad=total)
        descent, momentum, second = self.descent(s, mean, here)
        return OptimizerState(s.theta - descent, momentum, second)
