"""What an algorithm may touch: the clients hosted here, their network, gradients and randomness."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from torch import Tensor

from tacit.core.codec import Codec
from tacit.core.neighbourhood import Neighbourhood
from tacit.core.noise import Noise
from tacit.core.randomness import Randomness
from tacit.core.rows import CodedRows, LazyRows, Sent, Spent, add_rows
from tacit.core.schedules import Rate, rate_at
from tacit.core.workers import WorkerPool

Function = Callable[[Tensor], Tensor]
Apply = Callable[
    [str, Function, Tensor, float | None], Tensor
]  # tag, function, rows, epsilon: see `nonlinear`


class Network(Protocol):
    """The only way to talk. All verbs are collective: all clients take part, in the same order."""

    def mix(self, **rows: Sent) -> tuple[Tensor, ...]:
        """Each client sends its row of each tensor [n, P] to its out-neighbours and gets Σⱼ wᵢⱼ xⱼ.

        What comes back are new tensors, the caller's to write into.
        """
        ...

    def send(self, tag: str, edge_rows: Tensor, *, private: bool = False) -> Tensor:
        """Deliver one row per out-edge [e, P] to the other end: one row per in-edge [f, P]."""
        ...

    def average(self, **rows: Tensor) -> tuple[Tensor, ...]:
        """Each client sends its row to a server and gets back the mean over all clients.

        No decentralized algorithm needs this: it is here so that training with a server runs, is counted and is
        attacked by the same means.
        """
        ...


class Objective(Protocol):
    """What the hosted clients minimise."""

    def theta0(self) -> Tensor:
        """Initial models [n, P], one row per hosted client; the caller owns the tensor."""
        ...

    def grad(self, theta: Tensor, number: int, spent: Tensor | None = None) -> Tensor:
        """Each hosted client's stochastic gradient at its own row, on its batch `number` = 0, 1, ….

        What comes back is the caller's; rows that are `spent` may be used for it.
        """
        ...

    def minimise(self, linear: Tensor, curvature: Tensor, number: int) -> Tensor:
        """Each argmin_w fᵢ(w) + linearᵢᵀw + curvatureᵢ/2 ‖w‖² [n, P] where it is known exactly; refused elsewhere."""
        ...


@dataclass(frozen=True)
class Here:
    """The hosted clients at one moment of a run ("here" in the algorithms).

    `t` is the iteration, 0 in `start` and in the first step. `tick` tells all moments apart (0 in `start`,
    t + 1 in step t); keys of noise and numbers of batches are made from it.
    """

    graph: Neighbourhood
    net: Network
    objective: Objective
    randomness: Randomness
    gradients_per_step: int = 1
    apply: Apply = lambda tag, function, rows, epsilon: function(rows)
    t: int = 0
    tick: int = 0
    reuse: bool = False  # whether rows that an algorithm calls spent may be written into
    pool: WorkerPool = field(default_factory=lambda: WorkerPool(1))

    def at(self, t: int, reuse: bool = False) -> Here:
        """The same clients in step t."""
        return replace(self, t=t, tick=t + 1, reuse=reuse)

    @property
    def theta0(self) -> Tensor:
        """Initial models [n, P]: a new tensor each time, always with the same numbers."""
        return self.objective.theta0()

    def grad(self, theta: Tensor, local: int = 0, *, spent: Tensor | None = None) -> Tensor:
        """Stochastic gradients [n, P] at each client's own row, the caller's to write into.

        Gradient `local` = 0, 1, … of a step is on the step's next batch; the same `local` is the same batch. Rows
        that are `spent` are not needed any more and may be used for the result.
        """
        return self.objective.grad(theta, self._batch(local), spent if self.reuse else None)

    def spent(self, rows: Tensor) -> Sent:
        """Rows of a state to be sent that are not needed afterwards: the network may use them for what it gives."""
        return Spent(rows) if self.reuse else rows

    def add(self, onto: Tensor, *terms: tuple[float, Tensor]) -> None:
        """Add Σ weight · rows in place, in this order: in one pass over memory by all cores where that is possible."""
        add_rows(onto, *terms, pool=self.pool)

    def minimise(self, linear: Tensor, curvature: Tensor) -> Tensor:
        """Each argmin_w fᵢ(w) + bᵢᵀw + cᵢ/2 ‖w‖² [n, P] for b [n, P], c [n, 1]; tasks that do not know it refuse."""
        return self.objective.minimise(linear, curvature, self._batch(0))

    def _batch(self, local: int) -> int:
        """The number of the batch that gradient `local` of this step is taken on."""
        if not 0 <= local < self.gradients_per_step:
            raise ValueError(
                f"gradient {local} of {self.gradients_per_step} in a step: declare local_steps"
            )
        first = 0 if self.tick == 0 else 1 + (self.tick - 1) * self.gradients_per_step
        return first + local

    def rate(self, rate: Rate) -> float:
        """The value of a step size, a number or a schedule, at this iteration."""
        return rate_at(rate, self.t)

    @property
    def _now(self) -> int:
        """The tick as noise is keyed by it; of an iteration that is recorded only the device knows it."""
        return self.tick

    def noise(self, tag: str, law: Noise, width: int | None = None) -> Tensor:
        """Noise [n, P], or [n, width], that each client draws for itself."""
        rows = self.randomness.rows(tag, law, self._now, self.graph.ids, None, width)
        return rows.tensor()

    def words(self, tag: str, width: int) -> Tensor:
        """Uniform 32-bit words [n, width] (int64) that each client draws for itself.

        Draw them inside a function given to `nonlinear`: what is made of them is not linear in anything.
        """
        return self.randomness.words(tag, self._now, self.graph.ids, width)

    def edge_noise(self, tag: str, law: Noise) -> tuple[LazyRows, LazyRows]:
        """Noise that the two ends of each directed edge share: rows of the out-edges and of the in-edges.

        Both ends derive it from their common key, so it costs no bytes on the wire.
        """
        graph = self.graph
        sent = self.randomness.rows(tag, law, self._now, graph.out_source, graph.out_target)
        received = self.randomness.rows(tag, law, self._now, graph.in_source, graph.in_target)
        return sent, received

    def nonlinear(
        self, tag: str, function: Function, rows: Tensor, *, epsilon: float | None = None
    ) -> Tensor:
        """Apply a non-linear `function` to own rows; declaring it lets the audit treat the result as unknown.

        `epsilon` says that each coordinate of the result is ε-locally differentially private in that of the rows.
        """
        return self.apply(tag, function, rows, epsilon)

    def encoded(self, tag: str, codec: Codec, rows: Tensor) -> CodedRows:
        """Own rows [n, P] as they travel by a codec, ready for `net.mix`."""

        def draw(purpose: str, count: int) -> Tensor:
            return self.words(f"{tag}/{purpose}", count)

        decoded = (
            rows if codec.lossless else self.nonlinear(tag, lambda x: codec.received(x, draw), rows)
        )
        return CodedRows(
            decoded,
            size=lambda: codec.size(rows.shape[1], rows.dtype),
            encode=lambda: codec.encode(rows, draw),
            decode=lambda wire: codec.decode(wire, rows.shape[1], rows.dtype),
        )
