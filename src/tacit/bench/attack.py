"""Gradient inversion of many victims as one batch, against the same one by one, and against the usual script.

Every victim sends the gradient of one digit at weights of its own (a sigmoid network of three convolutions). All
searches run for a fixed number of iterations of L-BFGS and count their evaluations: the loss between gradients and
its own gradient, once. The usual script is `torch.optim.LBFGS` on one dummy input with plain double backward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn import functional

from tacit import data
from tacit.auditing.attacks.inversion import invert
from tacit.auditing.attacks.lbfgs import LBFGS
from tacit.auditing.attacks.observation import Observation
from tacit.bench.result import Asked, Result
from tacit.bench.stopwatch import Stopwatch
from tacit.models.convolutional import sigmoid_cnn
from tacit.tasks.flat import FlatModule, ModuleLoss

SUMMARY = "inversion steps per second of all victims as one batch / one victim after the other"
WORKLOADS = ("one-by-one", "by-hand")
SHAPE, CLASSES = (1, 28, 28), 10
VICTIMS, QUICK_VICTIMS = 32, 4
ITERATIONS, QUICK_ITERATIONS = 30, 5
ALONE = 2  # victims attacked one after the other in a turn
REPEATS, QUICK_REPEATS = 5, 1


@dataclass(frozen=True, eq=False)
class Victims:
    """Gradients that were seen, and what the attackers know besides."""

    loss: ModuleLoss
    weights: Tensor  # [V, P]
    gradients: Tensor  # [V, P]
    search: LBFGS

    @classmethod
    def make(cls, count: int, iterations: int, device: torch.device) -> Victims:
        """Victims with one digit and weights of its own each."""
        flat = FlatModule(sigmoid_cnn(SHAPE, CLASSES, uniform=0.5))
        loss = ModuleLoss(flat, functional.cross_entropy).to(device)
        digits = data.load("mnist-mini", limit_train=count).train
        weights = torch.stack([flat.random_weights("bench", victim) for victim in range(count)]).to(
            device
        )
        x, y = digits.x[:, None].to(device), digits.y[:, None].to(device)
        gradients: Tensor = vmap(grad(loss))(weights, x, y)
        return cls(loss, weights, gradients, LBFGS(iterations, enough=0.0, flat=0.0, gain=0.0))

    def attack(self, which: slice) -> int:
        """Invert the gradients of these victims at once; how many evaluations it took."""
        seen = Observation.gradient(self.weights[which], self.gradients[which])
        found = invert(
            self.loss, seen, shape=SHAPE, classes=CLASSES, optimiser=self.search, restarts=1
        )
        return int(found.evaluations.sum())

    def attack_by_hand(self, victim: int) -> int:
        """Invert one gradient as people write it; how many evaluations it took."""
        theta, value = self.weights[victim].clone().requires_grad_(), self.gradients[victim]
        label = value[-CLASSES:].argmin()[None]  # the only negative slope of the last layer's bias
        generator = torch.Generator().manual_seed(victim)
        dummy = torch.rand(1, *SHAPE, generator=generator).to(theta.device).requires_grad_()
        optimiser = torch.optim.LBFGS(
            [dummy],
            max_iter=self.search.iterations,
            max_eval=2 * self.search.iterations,
            history_size=self.search.history,
            line_search_fn="strong_wolfe",
            tolerance_grad=0.0,
            tolerance_change=0.0,
        )
        evaluations = 0

        def closure() -> Tensor:
            nonlocal evaluations
            (gradient,) = torch.autograd.grad(
                self.loss(theta, dummy, label), theta, create_graph=True
            )
            distance = (gradient - value).square().sum()
            (dummy.grad,) = torch.autograd.grad(distance, dummy)
            evaluations += 1
            return distance.detach()

        optimiser.step(closure)  # type: ignore[no-untyped-call]
        return evaluations


def offered(device: torch.device) -> tuple[str, ...]:
    """Everywhere."""
    return WORKLOADS


def measure(asked: Asked) -> Iterator[Result]:
    """One batch in turns with a few victims of each other way."""
    asked.progress("attack: preparing", 0, 1)
    count = QUICK_VICTIMS if asked.quick else VICTIMS
    iterations = QUICK_ITERATIONS if asked.quick else ITERATIONS
    victims = Victims.make(count, iterations, asked.device)
    alone = range(ALONE)
    ways: dict[str, Callable[[], int]] = {
        "batch": lambda: victims.attack(slice(None)),
        "one-by-one": lambda: sum(victims.attack(slice(victim, victim + 1)) for victim in alone),
        "by-hand": lambda: sum(victims.attack_by_hand(victim) for victim in alone),
    }
    ways = {name: way for name, way in ways.items() if name in ("batch", *asked.workloads)}
    steps = {
        name: way() for name, way in ways.items()
    }  # the same in every turn; this also warms up
    repeats = asked.repeats or (QUICK_REPEATS if asked.quick else REPEATS)
    turns = asked.turns_of("attack")
    timings = Stopwatch.on(asked.device).interleaved(ways, repeats, warmups=0, turns=turns)
    each = timings.median("batch") / steps["batch"]
    for name in asked.workloads:
        yield Result(
            "attack",
            name,
            timings.ratio(name, "batch", scale=steps["batch"] / steps[name]),
            each,
            timings.median(name) / steps[name],
            "step: one evaluation for one victim",
            repeats,
            "steps per second in one batch / steps per second one after the other",
            "higher",
            {
                "victims": count,
                "ours_steps_per_second": 1 / each,
                "limit_steps_per_second": steps[name] / timings.median(name),
            },
        )
