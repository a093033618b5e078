"""Random numbers in place of gradients and first models, for `replay`.

What non-linear steps declare of themselves is checked where they are applied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from tacit.core.discrete_gaussian import DiscreteGaussian
from tacit.core.here import Nonlinear
from tacit.core.hosted_clients import Sampling
from tacit.core.noise import Noise
from tacit.core.randomness import Randomness
from tacit.core.rows import NoiseRows
from tacit.record.transcript import TranscriptRecorder
from tacit.record.unknowns import Unknown, noise_unknowns

RELATIVE = 1e-8  # difference allowed, relative to Σ |coefficient| · |number|


@dataclass(frozen=True, eq=False)
class AppliedStep:
    """A non-linear step of all clients, its arguments and its result [n, P] each."""

    step: Nonlinear
    arguments: tuple[Tensor, ...]
    result: Tensor


@dataclass(eq=False)
class RandomClients:
    """An objective of random gradients, and non-linear steps whose declarations are checked.

    Attributes:
        ids: The clients.
        recorder: Knows the current tick.
        seed: Keys all numbers.
        size: Their standard deviation.
        common_start: Whether all clients start from one model.
        width: Numbers in a row.
        gradients: Another number gives other gradients.
        points: Where the gradients on batch 0, 1, … were taken.
        steps: The non-linear steps, by tick and tag.
        problems: What steps declare wrongly, or do that they must not.
        drawn_inside: Noise that was drawn inside of non-linear steps.
    """

    ids: Tensor
    recorder: TranscriptRecorder
    seed: int
    size: float
    common_start: bool
    width: int
    gradients: int = 0
    points: dict[int, Tensor] = field(default_factory=dict)
    steps: dict[tuple[int, str], AppliedStep] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    drawn_inside: set[Unknown] = field(default_factory=set)
    _inside_step: str | None = None
    _drawn_by: dict[tuple[str, int], str] = field(default_factory=dict)

    def theta0(self) -> Tensor:
        rows = self._rows("theta0", 0)
        return rows[:1].repeat(len(rows), 1) if self.common_start else rows

    def grad(self, theta: Tensor, number: int, out: Tensor | None = None) -> Tensor:
        self.points[number] = theta.clone()
        return self._rows("gradient", number)

    def clipped_sum(
        self, theta: Tensor, sampling: Sampling, number: int, out: Tensor | None = None
    ) -> Tensor:
        return self.grad(theta, number)

    def minimise(self, linear: Tensor, curvature: Tensor, number: int) -> Tensor:
        w = -(self._rows("gradient", number) + linear) / curvature
        self.points[number] = w.clone()
        return w

    def apply(self, step: Nonlinear, *rows: Tensor) -> Tensor:
        arguments = tuple(argument.clone() for argument in rows)
        self._inside_step = step.tag
        out = step(*(argument.clone() for argument in rows))
        applied = AppliedStep(step, arguments, out.clone())
        self.steps[self.recorder.tick, step.tag] = applied
        self.problems += _false_declarations(step, rows, out)
        self._inside_step = None
        return out

    def draw(self, stream: str, tick: int, noise: tuple[Tensor, Tensor | None] | None) -> None:
        """Note who draws a random stream; two steps with one stream are not independent.

        Args:
            stream: Its name.
            tick: When it is drawn.
            noise: Whose noise it is, from `source` and perhaps to `target`; None if it is no noise.
        """
        if self._inside_step is None:
            return
        if self._drawn_by.setdefault((stream, tick), self._inside_step) != self._inside_step:
            self.problems.append(f"two non-linear steps draw the same random numbers {stream!r}")
        if noise is not None:
            self.drawn_inside.update(noise_unknowns(stream, tick, *noise))

    def _rows(self, kind: str, number: int) -> Tensor:
        """Numbers of both signs and many sizes, with zeros among them."""
        variant = self.gradients if kind == "gradient" else 0
        rng = np.random.default_rng((self.seed, len(kind), number, variant))
        shape = (len(self.ids), self.width)
        rows = self.size * rng.normal(size=shape) * 10.0 ** rng.uniform(-1, 1, (len(self.ids), 1))
        return torch.as_tensor(np.where(rng.random(shape) < 0.1, 0.0, rows))


@dataclass(frozen=True, eq=False)
class WatchedNoise:
    """Randomness that tells the clients which numbers are drawn."""

    randomness: Randomness
    clients: RandomClients

    def rows(
        self,
        tag: str,
        law: Noise,
        tick: int,
        source: Tensor,
        target: Tensor | None,
        width: int | None = None,
    ) -> NoiseRows:
        self.clients.draw(tag, tick, (source, target))
        return self.randomness.rows(tag, law, tick, source, target, width)

    def masks(self, tag: str, tick: int, one: Tensor, other: Tensor) -> Tensor:
        return self.randomness.masks(tag, tick, one, other)

    def words(
        self, tag: str, tick: int, source: Tensor, width: int, dtype: torch.dtype = torch.int64
    ) -> Tensor:
        self.clients.draw(f"words {tag}", tick, None)
        return self.randomness.words(tag, tick, source, width, dtype)

    def add_integers(
        self, tag: str, law: DiscreteGaussian, tick: int, source: Tensor, onto: Tensor
    ) -> None:
        self.clients.draw(f"integers {tag}", tick, None)
        self.randomness.add_integers(tag, law, tick, source, onto)


def _false_declarations(
    step: Nonlinear, arguments: tuple[Tensor, ...], out: Tensor
) -> Iterator[str]:
    name, rows = f"the non-linear step {step.tag!r}", arguments[0]
    if any(out.shape != argument.shape for argument in arguments):
        yield f"{name} gives rows of another shape"
        return
    others = [torch.cat((2 * x[:1] + 1, x[1:])) for x in arguments]
    if len(rows) > 1 and not torch.equal(step(*others)[1:], out[1:]):
        yield f"{name} of one client depends on the rows of others"
    if step.deterministic:
        clients = enumerate(zip(*arguments, strict=True))
        single = torch.cat([step.of_client(k, *(x[None].clone() for x in xs)) for k, xs in clients])
        if not torch.allclose(single, out, rtol=RELATIVE, atol=0):
            yield f"{name} is declared deterministic, but is not a function of each row"
    if step.inverse is not None:
        # Where f is flat an inverse has no digits left: compare what it gives through f.
        back = step.function(step.inverse(out.clone()))
        if not torch.allclose(back, out, rtol=1e-6, atol=0):
            yield f"{name} declares an inverse that is none"
    if step.lipschitz is not None:
        moved = rows + 1e-3 * rows.roll(1, 0)
        change = (step.function(moved.clone()) - out).norm(dim=1)
        if bool((change > step.lipschitz * (moved - rows).norm(dim=1) * (1 + 1e-6)).any()):
            yield f"{name} changes faster than the Lipschitz constant it declares"
