"""The matching loss of many guesses and its gradient: a gradient of a gradient, all guesses as one batch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import grad, grad_and_value, vmap

from tacit.auditing.attacks.guesses import Layout
from tacit.auditing.attacks.objectives import MatchingLoss
from tacit.auditing.attacks.observation import JointObservation, Observation
from tacit.tasks.flat import Loss

# (row [n], weights [K, P], value [P] or [M, P], labels [T, batch, ...] or None) -> scalar
OneLoss = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


class Matching:
    """D(Σₖ cₖ∇L(θₖ; xₖ, yₖ), v) of guesses as rows, the mean over values known together, and its gradient.

    `problems` [B] are the numbers of the guesses that it is of; guess i belongs to victim i // guesses. One `vmap`
    over everything is the fastest on a CPU too (0.7 ms per guess of a small sigmoid network on two cores, 8 ms
    alone), although convolutions with weights of their own become grouped ones.
    """

    def __init__(
        self,
        loss: Loss,
        observation: Observation | JointObservation,
        objective: MatchingLoss,
        layout: Layout,
        labels: Tensor | None,
        problems: Tensor,
        guesses: int,
    ) -> None:
        self.observation = observation
        self.problems, self.guesses = problems, guesses
        self.labels = None if labels is None else labels.flatten(0, 1)  # [V·R, T, batch, ...]
        one = (
            joint_loss(loss, observation, objective, layout)
            if isinstance(observation, JointObservation)
            else matching_loss(loss, observation, objective, layout)
        )
        in_dims = (0, 0, 0, None if labels is None else 0)
        self._each: Callable[..., tuple[Tensor, Tensor]] = vmap(
            grad_and_value(one), in_dims=in_dims
        )
        self._asked: Tensor | None = None

    def __call__(self, rows: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
        """Values [A] and gradients [A, n] of rows [A, n], which are guesses problems[which]."""
        if self._asked is not which:  # optimisers ask for the same problems many times
            self._asked, self._known = which, self._gather(self.problems[which])
        slopes, values = self._each(rows, *self._known)
        return values.detach(), slopes.detach()

    def _gather(self, guesses: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        victim = guesses // self.guesses
        labels = None if self.labels is None else self.labels[guesses]
        return self.observation.weights[victim], self.observation.values[victim], labels


def matching_loss(
    loss: Loss, observation: Observation, objective: MatchingLoss, layout: Layout
) -> OneLoss:
    """The loss of one guess by one value."""
    coefficients = observation.coefficients
    each = vmap(grad(loss), in_dims=(0, None, None) if observation.same_data else (0, 0, 0))

    def one(row: Tensor, weights: Tensor, value: Tensor, labels: Tensor | None) -> Tensor:
        inputs = layout.inputs(row)
        targets = layout.soft_labels(row) if labels is None else labels
        if len(coefficients) == 1:
            combination = coefficients[0] * grad(loss)(weights[0], inputs[0], targets[0])
        elif observation.same_data:
            combination = coefficients @ each(weights, inputs[0], targets[0])
        else:
            combination = coefficients @ each(weights, inputs, targets)
        return objective(combination, value, inputs.flatten(0, 1))

    return one


def joint_loss(
    loss: Loss, observation: JointObservation, objective: MatchingLoss, layout: Layout
) -> OneLoss:
    """The loss of one guess by all values that are known together: the mean of their objectives."""
    data = torch.tensor(observation.data, device=observation.weights.device)
    gradients = vmap(grad(loss))
    distances = vmap(objective, in_dims=(0, 0, None))

    def one(row: Tensor, weights: Tensor, values: Tensor, labels: Tensor | None) -> Tensor:
        inputs = layout.inputs(row)
        targets = layout.soft_labels(row) if labels is None else labels
        combinations = observation.coefficients @ gradients(weights, inputs[data], targets[data])
        each: Tensor = distances(combinations, values, inputs.flatten(0, 1))
        return each.mean()

    return one
