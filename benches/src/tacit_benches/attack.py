"""Gradient inversion of many victims in one batch, compared with one victim at a time.

Every victim sends the gradient of one digit at its own weights (a sigmoid network of three
convolutions). All searches run a fixed number of L-BFGS iterations and count their evaluations: one
is the loss between gradients together with its gradient. "By hand" is the usual script:
`torch.optim.LBFGS` on one dummy input with double backward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn import functional

from tacit import data
from tacit.auditing.attacks.data_spec import DataSpec
from tacit.auditing.attacks.inversion import invert
from tacit.auditing.attacks.lbfgs import LBFGS
from tacit.auditing.attacks.observation import Observation
from tacit.models.networks import sigmoid_cnn
from tacit.tasks.flat import FlatModule, ModuleLoss
from tacit_benches.benchmark import BenchOptions, BenchResult

SUMMARY = "inversion steps per second of all victims as one batch / one victim after the other"
WORKLOADS = ("one-by-one", "by-hand")
DEFAULTS = {"cpu": WORKLOADS, "cuda": WORKLOADS}
SHAPE, CLASSES = (1, 28, 28), 10
VICTIMS, QUICK_VICTIMS = 32, 4
ITERATIONS, QUICK_ITERATIONS = 30, 5
# Victims per repeat that are attacked one after the other.
SINGLE_VICTIMS = 2
REPEATS, QUICK_REPEATS = 5, 1


class Victims:
    """What the attackers know: the loss, and weights and gradients [V, P]."""

    def __init__(self, count: int, iterations: int, device: torch.device) -> None:
        flat = FlatModule(sigmoid_cnn(SHAPE, CLASSES, uniform=0.5))
        self.loss = ModuleLoss(flat, functional.cross_entropy).to(device)
        digits = data.load("mnist-mini", limit_train=count).train
        weights = [flat.random_weights("bench", victim) for victim in range(count)]
        self.weights = torch.stack(weights).to(device)
        x, y = digits.x[:, None].to(device), digits.y[:, None].to(device)
        self.gradients: Tensor = vmap(grad(self.loss))(self.weights, x, y)
        self.search = LBFGS(
            iterations, value_tolerance=0.0, gradient_tolerance=0.0, change_tolerance=0.0
        )

    def attack(self, which: slice) -> int:
        """Invert the gradients of these victims in one batch; return the evaluations."""
        seen = Observation.gradient(self.weights[which], self.gradients[which])
        found = invert(
            self.loss, seen, DataSpec(SHAPE, classes=CLASSES), optimiser=self.search, restarts=1
        )
        return int(found.evaluations.sum())

    def attack_by_hand(self, victim: int) -> int:
        """Invert one gradient with a plain script; return the evaluations."""
        theta, value = self.weights[victim].clone().requires_grad_(), self.gradients[victim]
        # The last layer's bias has its only negative gradient at the label.
        label = value[-CLASSES:].argmin()[None]
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


def measure(options: BenchOptions) -> Iterator[BenchResult]:
    options.progress("attack: preparing", 0, 1)
    count = QUICK_VICTIMS if options.quick else VICTIMS
    iterations = QUICK_ITERATIONS if options.quick else ITERATIONS
    victims = Victims(count, iterations, options.device)
    single = range(SINGLE_VICTIMS)
    attacks: dict[str, Callable[[], int]] = {
        "batch": lambda: victims.attack(slice(None)),
        "one-by-one": lambda: sum(victims.attack(slice(victim, victim + 1)) for victim in single),
        "by-hand": lambda: sum(victims.attack_by_hand(victim) for victim in single),
    }
    attacks = {name: attacks[name] for name in ("batch", *options.workloads)}
    # The same numbers in every repeat. This is also the warm-up.
    steps = {name: attack() for name, attack in attacks.items()}
    timings = options.time("attack", attacks, REPEATS, QUICK_REPEATS, warmups=0)
    step_seconds = timings.median("batch") / steps["batch"]
    for name in options.workloads:
        yield BenchResult(
            "attack",
            name,
            timings.ratio(name, "batch", scale=steps["batch"] / steps[name]),
            step_seconds,
            timings.median(name) / steps[name],
            "step: one evaluation for one victim",
            timings.repeats,
            "steps per second in one batch / steps per second one after the other",
            "higher",
            {
                "victims": count,
                "ours_steps_per_second": 1 / step_seconds,
                "limit_steps_per_second": steps[name] / timings.median(name),
            },
        )
