"""What an algorithm sees: the hosted clients, their graph, network, gradients and randomness."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tacit.core.codec import Codec
from tacit.core.fixed_point import FixedPoint, IntegerRows
from tacit.core.neighbourhood import Neighbourhood
from tacit.core.noise import Noise
from tacit.core.rounded_sums import ROUNDING
from tacit.core.rows import CodedRows, NoiseRows, Sent
from tacit.core.schedules import Rate, rate_at

Function = Callable[..., Tensor]
# A result and the row it was computed from, [P] each → the log density of each coordinate [P].
LogDensity = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Nonlinear:
    """A step that is not linear in its rows, and what an algorithm declares about it."""

    tag: str
    function: Function  # rows [n, P], one tensor or several, then `public` → [n, P]
    epsilon: float | None = None
    deterministic: bool = False
    inverse: Function | None = None
    lipschitz: float | None = None
    mean: float | None = None
    public: tuple[Tensor, ...] = ()
    log_density: LogDensity | None = None

    def __call__(self, *rows: Tensor) -> Tensor:
        """The results of all clients."""
        return self.function(*rows, *self.public)

    def of_client(self, row: int, *rows: Tensor) -> Tensor:
        """The result [1, P] of the client of this row, from its rows [1, P]."""
        return self.function(*rows, *(numbers[row : row + 1] for numbers in self.public))


class Network(Protocol):
    """The only way to communicate. Collective: all clients call methods in the same order."""

    def mix(self, **rows: Sent) -> tuple[Tensor, ...]:
        """Send each client's row of each tensor [n, P] to its out-neighbours; return Σⱼ wᵢⱼ xⱼ."""
        ...

    def send(self, tag: str, edge_rows: Tensor, *, private: bool = False) -> Tensor:
        """Deliver one row per out-edge [e, P] to the other end; return one row per in-edge [f, P].

        `private` rows are end-to-end encrypted.
        """
        ...

    def total(self, **rows: IntegerRows) -> tuple[Tensor, ...]:
        """The sum over all clients, in every row [n, P]; clients learn nothing but the sum.

        `here.fixed_point` makes the rows. Masks that two neighbours share hide each client's row
        and cancel in the sum, which is computed along a spanning tree: N − 1 rows up, N − 1 down.
        """
        ...

    def average(self, **rows: Tensor) -> tuple[Tensor, ...]:
        """Send each client's row to a server; return the mean over all clients.

        Only centralized baselines use this.
        """
        ...


class Here(ABC):
    """The clients hosted here, at one iteration: everything an algorithm may touch.

    Tensors [n, P] have one row per hosted client; tensors [e, P] have one row per directed edge
    that leaves a hosted client.

    Attributes:
        graph: Edges of the hosted clients: lifts rows to edges and sums edges to rows.
        net: The network, with the methods `mix`, `send`, `total` and `average`.
        t: The iteration, 0 in `start` and in the first step.
    """

    graph: Neighbourhood
    net: Network
    t: int

    @property
    @abstractmethod
    def theta0(self) -> Tensor:
        """Initial models [n, P]: a new tensor each time, always with the same numbers."""

    @abstractmethod
    def grad(self, theta: Tensor, local: int = 0) -> Tensor:
        """Stochastic gradients [n, P] at each client's own row of models [n, P].

        `local` is the number of the gradient within this iteration; each has a batch of its own.
        """

    @abstractmethod
    def clipped_sum(
        self,
        theta: Tensor,
        bound: float,
        rate: float,
        local: int = 0,
        rounding: float = ROUNDING,
    ) -> Tensor:
        """Sums [n, P] of per-sample gradients at each client's own row of models [n, P].

        Each sample of a client is included with probability `rate`, independently of all others.
        Gradients are scaled to a norm of at most (1 − `rounding`)·`bound`, so that one sample
        changes the computed sum by at most `bound`, rounding included: see `rounded_sums`. `local`
        is the number of the gradient within this iteration.

        Raises:
            Misuse: If a client may draw so many samples that rounding takes more than its share.
        """

    @abstractmethod
    def minimise(self, linear: Tensor, curvature: Tensor) -> Tensor:
        """Each client's argmin_w fᵢ(w) + bᵢᵀw + cᵢ/2 ‖w‖² [n, P].

        `linear` is b [n, P] and `curvature` is c [n, 1].

        Raises:
            Misuse: If the task does not know its minimisers.
        """

    @abstractmethod
    def noise(self, tag: str, law: Noise, width: int | None = None) -> Tensor:
        """Noise [n, P], or [n, width], that each client draws for itself."""

    @abstractmethod
    def edge_noise(self, tag: str, law: Noise) -> tuple[NoiseRows, NoiseRows]:
        """Noise that the two ends of each edge share: a row per out-edge and a row per in-edge.

        Both ends derive it from their pairwise key, so it costs no bytes on the wire.
        """

    @abstractmethod
    def words(self, tag: str, width: int, dtype: torch.dtype = torch.int64) -> Tensor:
        """Uniform 32-bit words [n, width], int64 or uint32, that each client draws for itself.

        Draw them inside a function given to `nonlinear`: the result is not linear in anything.
        """

    @abstractmethod
    def nonlinear(
        self,
        tag: str,
        function: Function,
        *rows: Tensor,
        epsilon: float | None = None,
        deterministic: bool = False,
        inverse: Function | None = None,
        lipschitz: float | None = None,
        mean: float | None = None,
        public: tuple[Tensor, ...] = (),
        log_density: LogDensity | None = None,
    ) -> Tensor:
        """Apply a non-linear function to own rows [n, P].

        The audit treats the result as a new unknown, and uses what is declared about it.

        Args:
            tag: Name of this step in the audit.
            function: Maps rows [n, P] to rows [n, P], each client's by themselves.
            rows: Its arguments, one tensor or several.
            epsilon: If given, each coordinate of the result is ε-locally differentially private.
            deterministic: The result follows from the rows: who knows them knows it.
            inverse: Computes the rows from the result, where that is possible; of one argument.
            lipschitz: If given, ‖f(x) − f(y)‖ ≤ lipschitz · ‖x − y‖ for a deterministic f of one
                argument.
            mean: If given, the expected result is `mean` times the rows.
            public: Numbers of each client that everybody knows, such as its weights, [n, k] each;
                the function gets them after the rows.
            log_density: If given, the log density of each coordinate of the result, given a row of
                the one argument: smooth in that row, and of torch functions. Attacks on the result
                maximise it.
        """

    @abstractmethod
    def fixed_point(self, tag: str, rows: Tensor, code: FixedPoint) -> IntegerRows:
        """Own rows [n, P] as integers with noise, for `net.total`."""

    def rate(self, rate: Rate) -> float:
        """The value of a step size, a number or a schedule, at this iteration."""
        return rate_at(rate, self.t)

    def encoded(self, tag: str, codec: Codec, rows: Tensor) -> CodedRows:
        """Own rows [n, P] in the form in which a codec sends them, for `net.mix`."""
        # Compiled loops read half as much with 32 bits; tensor operations need 64.
        narrow = rows.device.type == "cpu" and getattr(codec, "narrow_words", False)
        dtype = torch.uint32 if narrow else torch.int64

        def draw(purpose: str, count: int) -> Tensor:
            return self.words(f"{tag}/{purpose}", count, dtype)

        decoded = rows
        if not codec.lossless:
            decoded = self.nonlinear(tag, lambda x: codec.received(x, draw), rows, mean=1.0)
        return CodedRows(
            decoded,
            size=lambda: codec.size(rows.shape[1], rows.dtype),
            encode=lambda: codec.encode(rows, draw),
            decode=lambda wire: codec.decode(wire, rows.shape[1], rows.dtype),
        )
