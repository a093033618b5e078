"""What inverting gradients as one batch saves: `python benches/inversion.py --victims 32 --restarts 8`.

Every victim sends the gradient of one digit at weights of its own (a sigmoid network of three convolutions). The
same inversion runs once over all victims × restarts as one batch, and once per victim and restart, one after
another; the sequential attacker too keeps the restart with the least loss of its own. A second sequential one is
what people write by hand: `torch.optim.LBFGS` with its strong-Wolfe search and plain autograd, for a sample of the
problems. Each batched run is measured between two halves of the sequential ones, so that a busy machine slows all
of it alike. SSIM and MSE are medians over the victims, against the truth, which no attack ever sees.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from dataclasses import dataclass, field

import torch
from skimage.metrics import structural_similarity
from torch import Tensor
from torch.func import grad, vmap
from torch.nn import functional

from tacit import data
from tacit.audit.attacks.inversion import Reconstruction, invert
from tacit.audit.attacks.lbfgs import LBFGS
from tacit.audit.attacks.observation import Observation
from tacit.models.convolutional import sigmoid_cnn
from tacit.tasks.flat import FlatModule, ModuleLoss

SHAPE, CLASSES = (1, 28, 28), 10


@dataclass
class Attacks:
    """What one way of attacking took and found, victim by victim."""

    problems: int = 0
    seconds: float = 0.0
    evaluations: float = 0.0
    losses: dict[int, float] = field(default_factory=dict)  # the least of each victim
    images: dict[int, Tensor] = field(default_factory=dict)

    def add(self, victim: int, loss: float, image: Tensor) -> None:
        """Keep the image if the attacker likes it better than what it had."""
        if loss < self.losses.get(victim, float("inf")):
            self.losses[victim], self.images[victim] = loss, image

    def line(self, name: str, truth: Tensor) -> str:
        """One row of the table."""
        pairs = [(truth[victim, 0, 0], image[0, 0]) for victim, image in sorted(self.images.items())]
        mse = torch.stack([(a - b).square().mean() for a, b in pairs])
        ssim = torch.tensor([structural_similarity(a.numpy(), b.numpy(), data_range=1.0) for a, b in pairs])
        each = self.seconds / self.problems
        return (
            f"{name:<26}{self.problems:>9}{self.seconds:>10.1f}{1e3 * each:>14.1f}"
            f"{self.evaluations / self.problems:>9.0f}{ssim.median():>10.4f}{ssim.min():>10.4f}{mse.median():>12.2e}"
        )


def victims(count: int) -> tuple[ModuleLoss, Observation, Tensor, Tensor]:
    """The loss, what was seen of each victim, and the truth: inputs [V, 1, 1, 28, 28] and labels [V, 1]."""
    flat = FlatModule(sigmoid_cnn(SHAPE, CLASSES, uniform=0.5))
    loss = ModuleLoss(flat, functional.cross_entropy)
    digits = data.load("mnist-mini", limit_train=count).train
    inputs, labels = digits.x[:count, None], digits.y[:count, None]
    weights = torch.stack([flat.fresh_weights("bench", victim) for victim in range(count)])
    gradients: Tensor = vmap(grad(loss))(weights, inputs, labels)
    return loss, Observation.gradient(weights, gradients), inputs, labels


def attack(
    loss: ModuleLoss, observation: Observation, search: LBFGS, restarts: int, seed: int
) -> Reconstruction:
    """The inversion that both ways run; labels are recovered from the gradient."""
    return invert(
        loss, observation, shape=SHAPE, classes=CLASSES, optimiser=search, restarts=restarts, seed=seed
    )


def together(loss: ModuleLoss, observation: Observation, search: LBFGS, restarts: int) -> Attacks:
    """All victims and restarts as one batch."""
    begin = time.perf_counter()
    found = attack(loss, observation, search, restarts, seed=0)
    out = Attacks(found.losses.numel(), time.perf_counter() - begin, float(found.evaluations.sum()))
    for victim, image in enumerate(found.inputs):
        out.add(victim, float(found.losses[victim].min()), image)
    return out


def alone(
    loss: ModuleLoss, observation: Observation, search: LBFGS, problems: list[tuple[int, int]], out: Attacks
) -> None:
    """The same inversion of these (victim, restart), one after another."""
    for victim, restart in problems:
        begin = time.perf_counter()
        mine = Observation.gradient(observation.weights[victim, :1], observation.values[victim : victim + 1])
        found = attack(loss, mine, search, 1, seed=1 + restart)
        out.seconds += time.perf_counter() - begin
        out.problems += 1
        out.evaluations += float(found.evaluations.sum())
        out.add(victim, float(found.losses), found.inputs[0])


class Enough(Exception):
    """The end of a search by hand: at the same loss as that of the other two."""


def by_hand(
    loss: ModuleLoss, observation: Observation, search: LBFGS, problems: list[tuple[int, int]], out: Attacks
) -> None:
    """The usual script: torch's own L-BFGS on one dummy input, with double backward."""
    for victim, restart in problems:
        begin = time.perf_counter()
        theta = observation.weights[victim, 0].clone().requires_grad_()
        value = observation.values[victim]
        label = value[-CLASSES:].argmin()[None]
        draw = torch.Generator().manual_seed(1000 * victim + restart)
        dummy = torch.rand(1, *SHAPE, generator=draw).requires_grad_()
        optimiser = torch.optim.LBFGS(
            [dummy],
            max_iter=search.iterations,
            max_eval=2 * search.iterations,
            history_size=search.history,
            line_search_fn="strong_wolfe",
            tolerance_grad=0.0,
            tolerance_change=0.0,
        )
        seen: list[float] = []

        def distance(theta: Tensor, dummy: Tensor, label: Tensor, value: Tensor) -> Tensor:
            (gradient,) = torch.autograd.grad(loss(theta, dummy, label), theta, create_graph=True)
            return (gradient - value).square().sum()

        guess = (theta, dummy, label, value)

        def closure(guess: tuple[Tensor, ...] = guess, seen: list[float] = seen) -> Tensor:
            now = distance(*guess)
            (guess[1].grad,) = torch.autograd.grad(now, guess[1])
            seen.append(float(now.detach()))
            if seen[-1] <= search.enough * seen[0]:
                raise Enough
            return now.detach()

        with contextlib.suppress(Enough):
            optimiser.step(closure)
        out.seconds += time.perf_counter() - begin
        out.problems += 1
        out.evaluations += len(seen)
        out.add(victim, float(distance(*guess).detach()), dummy.detach().clamp(0, 1))


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--victims", type=int, default=32)
    parser.add_argument("--restarts", type=int, default=8)
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--history", type=int, default=100)
    parser.add_argument("--enough", type=float, default=1e-7, help="end at this part of the first loss")
    parser.add_argument("--sample", type=int, default=None, help="sequential problems; all unless given")
    parser.add_argument("--by-hand", type=int, default=8, help="problems for torch.optim.LBFGS; 0 for none")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    loss, observation, inputs, _ = victims(given.victims)
    search = LBFGS(iterations=given.iterations, history=given.history, enough=given.enough)
    # Victims first: a sample has all of them before it has a second restart of any.
    problems = [(victim, restart) for restart in range(given.restarts) for victim in range(given.victims)]
    problems = problems[: given.sample]
    hand = problems[: given.by_hand]

    attack(loss, Observation.gradient(observation.weights[:1, 0], observation.values[:1]), LBFGS(2), 1, 0)
    sequential, script = Attacks(), Attacks()
    alone(loss, observation, search, problems[: len(problems) // 2], sequential)
    by_hand(loss, observation, search, hand[: len(hand) // 2], script)
    batched = together(loss, observation, search, given.restarts)
    by_hand(loss, observation, search, hand[len(hand) // 2 :], script)
    alone(loss, observation, search, problems[len(problems) // 2 :], sequential)

    print(
        f"{given.victims} victims × {given.restarts} restarts; L-BFGS with at most {given.iterations} iterations, "
        f"history {given.history}; threads: {given.threads}"
    )
    print(
        f"{'':<26}{'problems':>9}{'seconds':>10}{'ms/problem':>14}{'evals':>9}{'SSIM':>10}{'least':>10}{'MSE':>12}"
    )
    print(batched.line("one batch", inputs))
    for name, attacks in (("one after another", sequential), ("by hand (torch LBFGS)", script)):
        if attacks.problems:
            print(attacks.line(name, inputs))
            ratio = attacks.seconds / attacks.problems / (batched.seconds / batched.problems)
            print(f"{'  in batched problems':<26}{ratio:>33.1f}")


if __name__ == "__main__":
    main()
