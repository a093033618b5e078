"""The plain implementation of `Here`: every operation runs at once, on whole tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from tacit.core.errors import Misuse
from tacit.core.fixed_point import RESERVED, FixedPoint, IntegerRows
from tacit.core.here import Function, Here, Network, Nonlinear
from tacit.core.neighbourhood import Neighbourhood
from tacit.core.noise import Noise
from tacit.core.randomness import Philox, Randomness
from tacit.core.rounded_sums import ROUNDING
from tacit.core.rows import NoiseRows

Apply = Callable[..., Tensor]  # (step, *rows) → step(*rows)


class SamplingRule(NamedTuple):
    """How often samples are drawn and how their gradients are clipped: see `Here.clipped_sum`."""

    bound: float
    rate: float
    rounding: float


@dataclass(frozen=True, eq=False)
class Sampling:
    """How the samples of a sum of clipped gradients are drawn.

    Attributes:
        rate: The probability with which each sample is included.
        bound: What one sample changes at most.
        draw: (rows [k], width) → uniform 32-bit words [k, width] of the clients hosted in these
            rows, secret to each of them. Computed on the host.
        rounding: The share of the bound that rounding may take; 0 leaves it out of account.
    """

    rate: float
    bound: float
    draw: Callable[[Tensor, int], Tensor]
    rounding: float = ROUNDING

    @property
    def clip(self) -> float:
        """The largest norm of one sample's gradient: the bound without what rounding may add."""
        return (1 - self.rounding) * self.bound


class Objective(Protocol):
    """What the hosted clients minimise."""

    def theta0(self) -> Tensor:
        """Initial models [n, P]; the caller owns the tensor."""
        ...

    def grad(self, theta: Tensor, number: int, out: Tensor | None = None) -> Tensor:
        """Each hosted client's stochastic gradient at its own row, on its batch `number`.

        The result is written into `out` [n, P] if given; the caller owns it.
        """
        ...

    def clipped_sum(
        self, theta: Tensor, sampling: Sampling, number: int, out: Tensor | None = None
    ) -> Tensor:
        """Each hosted client's sum of clipped per-sample gradients at its own row [n, P].

        The result is written into `out` [n, P] if given; the caller owns it.
        """
        ...

    def minimise(self, linear: Tensor, curvature: Tensor, number: int) -> Tensor:
        """Each argmin_w fᵢ(w) + linearᵢᵀw + curvatureᵢ/2 ‖w‖² [n, P], where it is known exactly."""
        ...


@dataclass(frozen=True)
class HostedClients(Here):
    """Hosted clients, from an objective, a network and a source of randomness.

    `tick` tells all moments of a run apart: 0 in `start`, t + 1 in step t. It keys noise and
    numbers the batches.
    """

    graph: Neighbourhood
    net: Network
    objective: Objective
    randomness: Randomness
    gradients_per_step: int = 1
    apply: Apply = lambda step, *rows: step(*rows)
    t: int = 0
    tick: int = 0

    def at(self, t: int, graph: Neighbourhood | None = None) -> Self:
        """The same clients in step t, with other edges if given."""
        return replace(self, t=t, tick=t + 1, graph=self.graph if graph is None else graph)

    def with_network(self, net: Network) -> Self:
        """The same clients with another network."""
        return replace(self, net=net)

    @property
    def theta0(self) -> Tensor:
        return self.objective.theta0()

    def grad(self, theta: Tensor, local: int = 0) -> Tensor:
        return self.objective.grad(theta, self.batch(local))

    def clipped_sum(
        self,
        theta: Tensor,
        bound: float,
        rate: float,
        local: int = 0,
        rounding: float = ROUNDING,
    ) -> Tensor:
        return self.sampled_sum(theta, SamplingRule(bound, rate, rounding), local)

    def sampled_sum(self, theta: Tensor, rule: SamplingRule, local: int) -> Tensor:
        """`clipped_sum` with its options in one object."""
        return self.objective.clipped_sum(theta, self.sampling(rule, local), self.batch(local))

    def sampling(self, rule: SamplingRule, local: int) -> Sampling:
        """The sampling of gradient `local` of this step, from the clients' own randomness."""
        tag, tick, ids = f"{RESERVED} sampling/{local}", self._tick, self.graph.host_ids

        def draw(rows: Tensor, width: int) -> Tensor:
            return self.randomness.words(tag, tick, ids[rows], width)

        return Sampling(rule.rate, rule.bound, draw, rule.rounding)

    def minimise(self, linear: Tensor, curvature: Tensor) -> Tensor:
        return self.objective.minimise(linear, curvature, self.batch(0))

    def batch(self, local: int) -> int:
        """The number of the batch on which gradient `local` of this step is computed."""
        if not 0 <= local < self.gradients_per_step:
            count = self.gradients_per_step
            raise Misuse(
                f"Gradient {local} of an iteration is computed, but the algorithm has {count}.",
                f"Number them from 0, and declare gradients_per_step = {max(count, local + 1)}.",
            )
        first = 0 if self.tick == 0 else 1 + (self.tick - 1) * self.gradients_per_step
        return first + local

    def noise(self, tag: str, law: Noise, width: int | None = None) -> Tensor:
        _check_tag(tag)
        return self.randomness.rows(tag, law, self._tick, self.graph.ids, None, width).tensor()

    def words(self, tag: str, width: int, dtype: torch.dtype = torch.int64) -> Tensor:
        _check_tag(tag)
        return self.randomness.words(tag, self._tick, self.graph.ids, width, dtype)

    def edge_noise(self, tag: str, law: Noise) -> tuple[NoiseRows, NoiseRows]:
        _check_tag(tag)
        graph, rows = self.graph, self.randomness.rows
        sent = rows(tag, law, self._tick, graph.out_source, graph.out_target)
        received = rows(tag, law, self._tick, graph.in_source, graph.in_target)
        return sent, received

    def nonlinear(self, tag: str, function: Function, *rows: Tensor, **declared: Any) -> Tensor:
        step = Nonlinear(tag, function, **declared)
        if step.log_density is not None and (len(rows) != 1 or step.public):
            raise Misuse(
                f"The non-linear step {tag!r} declares a log density, but has more than one "
                "argument.",
                "The density is given one row: declare it for steps on one tensor, without public "
                "numbers.",
            )
        return self.apply(step, *rows)

    def fixed_point(self, tag: str, rows: Tensor, code: FixedPoint) -> IntegerRows:
        # Among others, masks of the sums before training have a reserved tag.
        _check_tag(tag)
        graph, randomness, tick, law = self.graph, self.randomness, self._tick, code.noise

        def draw_masks() -> Tensor:
            return randomness.masks(tag, tick, *graph.edge_ends)

        def compute() -> Tensor:
            integers = code.encode(rows)
            if law is not None:
                randomness.add_integers(tag, law, tick, graph.ids, integers)
            return integers

        def draw_noise() -> Tensor:
            # Noise may depend on the integers that it is added to.
            return compute() - code.encode(rows)

        def add_up() -> Tensor:
            assert isinstance(randomness, Philox)
            total = code.encoded_sum(rows, randomness.pool)
            if law is not None:
                randomness.add_integers(tag, law, tick, graph.ids, total[0])
            return total

        return IntegerRows(
            (len(rows), rows.shape[1]),
            compute,
            graph,
            draw_masks,
            None if law is None else draw_noise,
            lambda total: code.decode(total, rows.dtype),
            code.modulus,
            # Noise from keys depends on each client's integers.
            add_up if isinstance(randomness, Philox) else None,
        )

    @property
    def _tick(self) -> int:
        """The tick that keys noise; in a captured step it lives on the device."""
        return self.tick


def _check_tag(tag: str) -> None:
    """Raise Misuse for a tag whose random numbers an algorithm must not see."""
    if tag.startswith(RESERVED):
        raise Misuse(
            f"The tag {tag!r} begins with {RESERVED}, which is reserved for sums.",
            "Choose another tag.",
        )
