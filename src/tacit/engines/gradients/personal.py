"""Gradients of shared parameters, and the steps of those that stay local.

    gᵢ, hᵢ = ∇L(θᵢ, φᵢ)         on one batch
    φᵢ     ← φᵢ − λ hᵢ

An algorithm sees θ and g. Local parameters φ take a plain step with every gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.wrapped import WrappedAlgorithm
from tacit.core.errors import Misuse
from tacit.core.hosted_clients import Sampling
from tacit.core.schedules import rate_at
from tacit.engines.gradients.objective import HostedObjective
from tacit.tasks.local_parameters import LocalParameters
from tacit.tasks.objective import Objective


@dataclass(eq=False)
class LocalRows:
    """The local parameters [n, Q] of hosted clients, which every gradient advances.

    A gradient that is computed again on the same batch starts from the same local parameters.
    """

    value: Tensor
    _number: int | None = None
    _before: Tensor | None = None

    def before(self, number: int) -> Tensor:
        """The local parameters with which gradient `number` is computed."""
        return self.value if number != self._number or self._before is None else self._before

    def advance(self, number: int, before: Tensor, after: Tensor) -> None:
        """Set the local parameters after gradient `number`."""
        self._number, self._before, self.value = number, before, after

    def restore(self, value: Tensor) -> None:
        """Continue from other local parameters [n, Q]."""
        self._number, self._before, self.value = None, None, value


@dataclass(frozen=True, eq=False)
class PersonalObjective:
    """The objective of hosted clients with local parameters.

    Attributes:
        task: The task of the shared parameters.
        inner: The objective of whole models.
        local: What is local.
        rate: Step size of the local parameters at gradient `number`.
        rows: The local parameters.
    """

    task: Objective
    inner: HostedObjective
    local: LocalParameters
    rate: Callable[[int], float]
    rows: LocalRows = field(repr=False)

    @classmethod
    def of(cls, task: Objective, inner: HostedObjective, algorithm: Algorithm) -> PersonalObjective:
        """The objective of a task with local parameters.

        Args:
            task: The task.
            inner: The objective of its whole models.
            algorithm: The algorithm that exchanges the shared ones.
        """
        local = task.local
        assert local is not None
        lr, gradients = local_rate(algorithm, local), algorithm.gradients_per_step

        def rate(number: int) -> float:
            return rate_at(lr, max(0, number - 1) // gradients)

        return cls(task, inner, local, rate, LocalRows(local.local_of(inner.theta0())))

    def theta0(self) -> Tensor:
        return self.task.initial(self.inner.seed, self.inner.clients).to(self.inner.device)

    def grad(self, theta: Tensor, number: int, out: Tensor | None = None) -> Tensor:
        before = self.rows.before(number)
        gradients = self.inner.grad(self.local.join(theta, before), number)
        after = before - self.rate(number) * self.local.local_of(gradients)
        self.rows.advance(number, before, after)
        shared = self.local.shared_of(gradients)
        if self.task.clip is not None:
            shared = self.task.clip.clip_(shared)
        return shared if out is None else out.copy_(shared)

    def clipped_sum(
        self, theta: Tensor, sampling: Sampling, number: int, out: Tensor | None = None
    ) -> Tensor:
        raise Misuse(*NO_SAMPLE_SUMS)

    def minimise(self, linear: Tensor, curvature: Tensor, number: int) -> Tensor:
        raise Misuse(*NO_MINIMISER)


# A client's own contribution stays within its clipping bound whatever its local parameters are, so
# a guarantee for all data of one client holds: see docs/explanation/privacy-accounting.md.
NO_SAMPLE_SUMS = (
    "Local parameters void a guarantee for one sample: it changes the local parameters of its "
    "client, and through them the clipped gradients of all its other samples.",
    'Protect clients instead (unit = "client"), or leave `local` out.',
)
NO_MINIMISER = (
    "The exact solver takes no gradients, so local parameters would never be trained.",
    "Choose the quadratic, gradient or inner solver, or leave `local` out.",
)


def check_local(algorithm: Algorithm, task: Objective) -> None:
    """Raise `Misuse` if an algorithm cannot train a task with local parameters."""
    if task.local is None:
        return
    budget = algorithm.budget
    if budget is not None and budget.unit == "sample":
        raise Misuse(*NO_SAMPLE_SUMS)
    if algorithm.needs_minimiser:
        raise Misuse(*NO_MINIMISER)
    local_rate(algorithm, task.local)


def local_rate(algorithm: Algorithm, local: LocalParameters) -> float | Callable[[int], float]:
    """The step size of local parameters: their own, or that of the algorithm."""
    while isinstance(algorithm, WrappedAlgorithm):
        algorithm = algorithm.inner
    lr: float | Callable[[int], float] | None = local.lr or getattr(algorithm, "lr", None)
    if lr is None:
        raise Misuse(
            f"{algorithm.name} has no step size for the local parameters.",
            "Set local_lr, such as 0.1.",
        )
    return lr
