"""Gradient matching: how far the gradients of many guesses are from the observed values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.func import grad, grad_and_value, vmap

from tacit.auditing.attacks.evidence import RandomStep
from tacit.auditing.attacks.guesses import GuessLayout
from tacit.auditing.attacks.observation import Observation
from tacit.core.checks import check_number
from tacit.core.errors import Misuse
from tacit.tasks.flat import Loss


@dataclass(frozen=True)
class MatchingLoss(ABC):
    """A distance between the value of a guess and the observed one, plus α·TV(x)."""

    total_variation: float = field(default=0.0, kw_only=True)  # α, the weight of the prior

    def __post_init__(self) -> None:
        name = "total_variation"
        check_number(name, self.total_variation, at_least=0, example=1e-3, hint="its weight")

    def __call__(self, combination: Tensor, value: Tensor, inputs: Tensor) -> Tensor:
        """Of Σₖ cₖ ∇L(θₖ; guess) [P], the observed value [P] and the guessed inputs [n, ...]."""
        distance, alpha = self.distance(combination, value), self.total_variation
        return distance + alpha * total_variation(inputs) if alpha else distance

    @abstractmethod
    def distance(self, combination: Tensor, value: Tensor) -> Tensor:
        """Without the prior."""


@dataclass(frozen=True)
class L2(MatchingLoss):
    """‖Σₖ cₖ∇L(θₖ; x) − v‖² (DLG; Zhu et al. 2019), divided by ‖v‖² if relative."""

    relative: bool = False

    def distance(self, combination: Tensor, value: Tensor) -> Tensor:
        distance = (combination - value).square().sum()
        if self.relative:
            distance = distance / value.square().sum().clamp_min(torch.finfo(value.dtype).tiny)
        return distance


@dataclass(frozen=True)
class CosineDistance(MatchingLoss):
    """1 − ⟨Σ, v⟩ / (‖Σ‖·‖v‖) with Σ = Σₖ cₖ∇L(θₖ; x) (Geiping et al. 2020)."""

    def distance(self, combination: Tensor, value: Tensor) -> Tensor:
        squares = combination.square().sum() * value.square().sum()
        norms = squares.clamp_min(torch.finfo(value.dtype).tiny).sqrt()
        return 1 - (combination * value).sum() / norms


@dataclass(frozen=True)
class DeclaredDensity(MatchingLoss):
    """mean(−log p(v | ∇L(θ; x))) of what a random step made of a gradient.

    The noise of a random matrix is small where the gradient is. A distance, which weighs all
    coordinates alike, does not see that. If the length of the gradient is not known, because it was
    clipped, that of the guess is chosen to fit v.
    """

    step: RandomStep
    knows_length: bool = True

    def distance(self, combination: Tensor, value: Tensor) -> Tensor:
        step = self.step
        shift = 0.0 if step.shift is None else step.shift.to(value)
        if not self.knows_length:
            square = combination.square().sum().clamp_min(torch.finfo(value.dtype).tiny)
            length = (combination * (value / step.mean - shift)).sum() / square
            combination = length.abs() * combination
        return -step.log_density(value, combination + shift).mean()


def total_variation(inputs: Tensor) -> Tensor:
    """TV(x), the mean absolute differences of vertical and horizontal neighbours [..., H, W]."""
    if inputs.ndim < 3 or min(inputs.shape[-2:]) < 2:
        raise Misuse(
            f"Total variation of inputs of shape {tuple(inputs.shape[1:])}.",
            "It is for images [..., height, width]; set total_variation to 0.",
        )
    return inputs.diff(dim=-2).abs().mean() + inputs.diff(dim=-1).abs().mean()


class MatchingProblems:
    """Value and gradient of D(Σₖ cₖ∇L(θₖ; xₖ, yₖ), v) of many guesses.

    Of a joint observation it is the mean over its values. One `vmap` over all guesses is the
    fastest way on a CPU too (0.7 ms per guess of a small sigmoid network on two cores, 8 ms one by
    one), although it turns convolutions into grouped ones.

    Args:
        loss: The loss of a batch at a model.
        observation: What the adversary observed of V victims.
        matching_loss: The distance D.
        layout: What the numbers of a row stand for.
        labels: Labels of the guesses [V, R, T, batch, ...]; None if the rows contain them.
        problems: Numbers of the guesses [B], R for each victim.
        guesses: R.
    """

    def __init__(
        self,
        loss: Loss,
        observation: Observation,
        matching_loss: MatchingLoss,
        layout: GuessLayout,
        labels: Tensor | None,
        problems: Tensor,
        guesses: int,
    ) -> None:
        self.observation = observation
        self.problems, self.guesses = problems, guesses
        self.labels = None if labels is None else labels.flatten(0, 1)  # [V·R, T, batch, ...]
        one = grad_and_value(_guess_loss(loss, observation, matching_loss, layout))
        keys = observation.keys
        in_dims = (0, 0, 0, None if labels is None else 0, None if keys is None else 0)
        self._each: Callable[..., tuple[Tensor, Tensor]] = vmap(one, in_dims=in_dims)
        self._which: Tensor | None = None

    def __call__(self, rows: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
        """Values [A] and gradients [A, n] of rows [A, n], guesses number problems[which]."""
        # Optimisers evaluate the same problems many times in a row.
        if self._which is not which:
            guesses = self.problems[which]
            victim = guesses // self.guesses
            labels = None if self.labels is None else self.labels[guesses]
            keys = self.observation.keys
            observed = self.observation.weights[victim], self.observation.values[victim]
            self._arguments = (*observed, labels, None if keys is None else keys[victim])
            self._which = which
        gradients, values = self._each(rows, *self._arguments)
        return values.detach(), gradients.detach()


def _guess_loss(
    loss: Loss,
    observation: Observation,
    matching_loss: MatchingLoss,
    layout: GuessLayout,
) -> Callable[..., Tensor]:
    """D of a row [n], weights [K, P], values [M, P], and labels [T, batch, ...] or None.

    Last come the keys of the samples [T, batch], or None.
    """
    every, coefficients = observation.coefficients, observation.coefficients[0]
    batches = torch.tensor(observation.data, device=every.device)
    gradients = vmap(grad(loss))
    distances = vmap(matching_loss, in_dims=(0, 0, None))

    def one(
        row: Tensor, weights: Tensor, values: Tensor, labels: Tensor | None, keys: Tensor | None
    ) -> Tensor:
        inputs = layout.inputs(row)
        targets = layout.targets(row) if labels is None else labels
        data = [inputs, targets] if keys is None else [inputs, targets, keys]
        if not observation.is_single:
            guessed = every @ gradients(weights, *(array[batches] for array in data))
            each: Tensor = distances(guessed, values, inputs.flatten(0, 1))
            return each.mean()
        if len(coefficients) == 1:
            guessed = coefficients[0] * grad(loss)(weights[0], *(array[0] for array in data))
        elif observation.same_data:
            of_one_batch = vmap(grad(loss), in_dims=(0, *(None for _ in data)))
            guessed = coefficients @ of_one_batch(weights, *(array[0] for array in data))
        else:
            guessed = coefficients @ gradients(weights, *data)
        return matching_loss(guessed, values[0], inputs.flatten(0, 1))

    return one
