"""The matching loss of many guesses and its gradient, with all guesses in one batch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import grad, grad_and_value, vmap

from tacit.auditing.attacks.guesses import GuessLayout
from tacit.auditing.attacks.matching_losses import MatchingLoss
from tacit.auditing.attacks.observation import JointObservation, Observation
from tacit.tasks.flat import Loss

# (row [n], weights [K, P], value [P] or [M, P], labels [T, batch, ...] or None) → scalar
GuessLoss = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


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
        observation: Observation | JointObservation,
        matching_loss: MatchingLoss,
        layout: GuessLayout,
        labels: Tensor | None,
        problems: Tensor,
        guesses: int,
    ) -> None:
        self.observation = observation
        self.problems, self.guesses = problems, guesses
        self.labels = None if labels is None else labels.flatten(0, 1)  # [V·R, T, batch, ...]
        if isinstance(observation, JointObservation):
            one = _joint_loss(loss, observation, matching_loss, layout)
        else:
            one = _single_loss(loss, observation, matching_loss, layout)
        in_dims = (0, 0, 0, None if labels is None else 0)
        self._each: Callable[..., tuple[Tensor, Tensor]] = vmap(
            grad_and_value(one), in_dims=in_dims
        )
        self._which: Tensor | None = None

    def __call__(self, rows: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
        """Values [A] and gradients [A, n] of rows [A, n], guesses number problems[which]."""
        # Optimisers evaluate the same problems many times in a row.
        if self._which is not which:
            self._which, self._arguments = which, self._gather(self.problems[which])
        gradients, values = self._each(rows, *self._arguments)
        return values.detach(), gradients.detach()

    def _gather(self, guesses: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        victim = guesses // self.guesses
        labels = None if self.labels is None else self.labels[guesses]
        return self.observation.weights[victim], self.observation.values[victim], labels


def _single_loss(
    loss: Loss, observation: Observation, matching_loss: MatchingLoss, layout: GuessLayout
) -> GuessLoss:
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
        return matching_loss(combination, value, inputs.flatten(0, 1))

    return one


def _joint_loss(
    loss: Loss, observation: JointObservation, matching_loss: MatchingLoss, layout: GuessLayout
) -> GuessLoss:
    data = torch.tensor(observation.data, device=observation.weights.device)
    gradients = vmap(grad(loss))
    distances = vmap(matching_loss, in_dims=(0, 0, None))

    def one(row: Tensor, weights: Tensor, values: Tensor, labels: Tensor | None) -> Tensor:
        inputs = layout.inputs(row)
        targets = layout.soft_labels(row) if labels is None else labels
        combinations = observation.coefficients @ gradients(weights, inputs[data], targets[data])
        each: Tensor = distances(combinations, values, inputs.flatten(0, 1))
        return each.mean()

    return one
