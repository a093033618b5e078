"""Observations: combinations of gradients, and the models at which each was taken."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tacit.core.errors import Misuse


@dataclass(frozen=True, eq=False)
class Observation:
    """M values Σₖ Cₘₖ ∇L(θₖ; x, y) of V victims, as an adversary knows them.

    Gradient k is of batch data[k]. A difference of two gradients of one batch is a value, and so is
    a sum over clients, with a batch of each.
    """

    weights: Tensor  # [V, K, P] models at which the gradients were taken
    coefficients: Tensor  # [M, K]: a row for each value
    values: Tensor  # [V, M, P]
    data: tuple[int, ...]  # K numbers of batches, from 0; every batch is in some gradient
    keys: Tensor | None = None  # [V, batches, batch] of the samples' dropout; None: there is none

    def __post_init__(self) -> None:
        _check(self.weights, self.coefficients, self.values)
        terms = self.weights.shape[1]
        if len(self.data) != terms or sorted(set(self.data)) != list(range(self.batches)):
            raise Misuse(
                f"The {terms} gradients of an observation are of batches {list(self.data)}.",
                "Give the number of a batch for each gradient: 0, 1, … with none left out.",
            )

    @classmethod
    def single(
        cls,
        weights: Tensor,
        coefficients: Tensor,
        values: Tensor,
        same_data: bool,
    ) -> Observation:
        """One value Σₖ cₖ ∇L(θₖ; xₖ, yₖ) of each victim.

        Args:
            weights: Models [V, K, P] at which the gradients were taken.
            coefficients: [K]: (1, −1) of a difference, (1, …, 1) of a sum over clients.
            values: [V, P].
            same_data: Whether all K gradients are of one batch; else each has one of its own.
        """
        terms = weights.shape[1] if weights.ndim > 1 else 1
        data = (0,) * terms if same_data else tuple(range(terms))
        return cls(weights, coefficients[None], values[:, None], data)

    @classmethod
    def gradient(cls, weights: Tensor, values: Tensor) -> Observation:
        """∇L(θ; x, y) of each victim: weights and values [V, P]."""
        if weights.ndim != 2:
            raise Misuse(
                f"The weights have shape {tuple(weights.shape)}.",
                "They are [victims, parameters], one row each.",
            )
        return cls.single(weights[:, None], weights.new_ones(1), values, True)

    @property
    def batches(self) -> int:
        """Number of batches behind the values."""
        return max(self.data, default=0) + 1

    @property
    def same_data(self) -> bool:
        """Whether all gradients are of one batch."""
        return self.batches == 1

    @property
    def is_single(self) -> bool:
        """Whether it is one value, of one batch or of a batch for each gradient."""
        return len(self.coefficients) == 1 and self.batches in (1, len(self.data))


def _check(weights: Tensor, coefficients: Tensor, values: Tensor) -> None:
    """Check shapes, types, devices and that all numbers are finite."""
    if weights.ndim != 3 or min(weights.shape) < 1:
        raise Misuse(
            f"The weights of an observation have shape {tuple(weights.shape)}.",
            "They are [victims, gradients, parameters], with at least one of each.",
        )
    victims, terms, width = weights.shape
    count = values.shape[1] if values.ndim == 3 else 1
    for name, tensor, shape in (
        ("weights", weights, weights.shape),
        ("coefficients", coefficients, (count, terms)),
        ("values", values, (victims, count, width)),
    ):
        if tensor.shape != shape:
            raise Misuse(
                f"The {name} of an observation have shape {tuple(tensor.shape)}.",
                f"Weights {tuple(weights.shape)} need {shape}.",
            )
        kind, expected = (f"{each.dtype} on {each.device}" for each in (tensor, weights))
        if kind != expected or not tensor.is_floating_point():
            raise Misuse(
                f"The {name} are {kind}, the weights {expected}.",
                "Give all of them in one floating-point type and on one device.",
            )
        if not bool(tensor.isfinite().all()):
            raise Misuse(
                f"The {name} of an observation have numbers that are not finite.",
                "Leave out the iterations in which a client diverged.",
            )
