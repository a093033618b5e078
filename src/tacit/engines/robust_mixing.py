"""Robust mixing: liars among the neighbours change what a client computes by a bounded amount.

Plain mixing Σⱼ wᵢⱼ xⱼ gives a neighbour that sends −100 xⱼ full control. Two rules bound it, for at
most b liars among a client's neighbours, with the client's own row as the point to trust:

**Centred clipping** (He, Karimireddy and Jaggi 2022) pulls differences to the own row into a ball,

    xᵢ + Σⱼ wᵢⱼ (xⱼ − xᵢ) min(1, τᵢ/‖xⱼ − xᵢ‖),

where τᵢ is the (dᵢ − b)-th smallest of the dᵢ distances: no liar moves the result by more than
wᵢⱼ times the distance to some honest neighbour. It needs b < dᵢ, breaks down at b + 1 liars, and is
plain mixing for b = 0.

**Trimmed mean** (Yin et al. 2018) drops, coordinate by coordinate, the b largest and the b smallest
of the dᵢ + 1 values, and averages the rest. It needs 2b ≤ dᵢ and breaks down at b + 1 liars. Each
coordinate of the result is between two honest values. The mixing weights are not used.

Neither protects from data that a neighbour really has but labelled wrongly: such a row is honest by
these rules, and one among several.

Both are functions of own and received rows that are not linear: the audit treats the result as a
new unknown that follows from them. Robust mixing has a price in privacy: dᵢ − b malicious
neighbours that send a client its own row back make its result that row, and then know it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from tacit.algorithms.wrapped import WrappedAlgorithm
from tacit.core.checks import check_choice, check_count
from tacit.core.errors import Misuse
from tacit.core.here import Network
from tacit.core.hosted_clients import HostedClients
from tacit.core.rows import Sent
from tacit.engines.inner_network import InnerNetwork, uncoded
from tacit.engines.lazy_clients import LazyNetwork
from tacit.engines.lazy_rows import evaluated
from tacit.graph import Graph, World

Rule = Literal["centred-clipping", "trimmed-mean"]
RULES = ("centred-clipping", "trimmed-mean")
SUITED = "decentralized SGD"  # mixes, and needs no exact averages


@dataclass(frozen=True, eq=False)
class Robust(WrappedAlgorithm):
    """An algorithm that mixes robustly: see `tacit.engines.robust_mixing`.

    Args:
        inner: An algorithm that communicates by `net.mix`.
        rule: "centred-clipping" or "trimmed-mean".
        liars: The number b of neighbours of a client that may lie.
        allow_inexact: Accept an algorithm that needs exact averages, to study what it loses.

    Raises:
        Misuse: The algorithm does not mix, or needs exact averages; the message says why.

    >>> import torch, tacit
    >>> task = tacit.quadratic(torch.eye(2).repeat(5, 1, 1), torch.ones(5, 2))
    >>> graph = tacit.Topology.complete(5).mixing("metropolis")
    >>> algorithm = tacit.Robust(tacit.DSG(lr=0.2), "trimmed-mean", liars=1)
    >>> tacit.run(task, algorithm, graph, steps=10).theta.shape
    torch.Size([5, 2])
    """

    rule: Rule = "centred-clipping"
    liars: int = 1
    allow_inexact: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("The rule of robust mixing", self.rule, RULES)
        check_count("The number of liars", self.liars, at_least=0)
        name, why = self.inner.name, self.inner.exact_mixing
        if self.inner.needs_total:
            raise Misuse(
                f"{name} sums masked rows, and a mask hides a lie as well as the truth: no one can "
                "tell which row to leave out.",
                f"Use an algorithm that mixes, such as {SUITED}, or no robust mixing.",
            )
        if self.inner.keeps_guarantee:
            raise Misuse(
                f"{name} keeps a guarantee that is proved for exact averages.",
                "Use no robust mixing with it.",
            )
        if not self.inner.mixes:
            raise Misuse(
                f"{name} does not mix: there are no averages to make robust.",
                f"Use an algorithm that mixes, such as {SUITED}, or no robust mixing.",
            )
        if why and not self.allow_inexact:
            raise Misuse(
                f"{name} needs exact weighted averages, which robust mixing does not give: {why}.",
                f"Use an algorithm that does not, such as {SUITED}; to study what is lost, set "
                "allow_inexact.",
            )

    def __repr__(self) -> str:
        return f"{self.inner!r} with {self.rule} against {self.liars}"

    def check_graph(self, graph: Graph) -> None:
        """Raise Misuse also if some client has too few neighbours for so many liars."""
        super().check_graph(graph)
        degrees = np.bincount(graph.edges[:, 1], minlength=graph.clients)
        needed = 2 * self.liars if self.rule == "trimmed-mean" else self.liars + 1
        if (fewest := int(degrees.min())) < needed:
            raise Misuse(
                f"Client {int(degrees.argmin())} receives from {fewest} neighbours, and "
                f"{self.rule} against {self.liars} liars needs {needed}.",
                "Add edges, or assume fewer liars.",
            )

    def check_world(self, world: World) -> None:
        """Raise Misuse also if the graph changes, clients are absent or messages are late."""
        if not world.is_static:
            raise Misuse(
                "Robust mixing counts the liars among neighbours that stay the same.",
                "Give a fixed graph and let all clients take part, or use no robust mixing.",
            )
        super().check_world(world)

    def cautions(self, graph: Graph) -> list[str]:
        return [*super().cautions(graph), *self._losses()]

    def audit_remarks(self, graph: Graph) -> list[str]:
        degree = int(np.bincount(graph.edges[:, 1], minlength=graph.clients).min())
        return [
            *super().audit_remarks(graph),
            f"mixing is robust ({self.rule}, {self.liars} liars): its result is not linear in the "
            "rows, and the proofs treat it as an unknown that only those know who know all rows "
            "that enter it; what others estimate from some of these rows is not bounded",
            f"malicious neighbours of a client, {degree - self.liars} of {degree} where there are "
            "fewest, that send it its own row back decide the result of its mixing, and know it: "
            "they compute its gradient as if it had no other neighbours",
            *self._losses(),
        ]

    def _losses(self) -> list[str]:
        """What an algorithm that needs exact averages loses."""
        if not (why := self.inner.exact_mixing):
            return []
        return [
            f"robust mixing gives no exact averages, and {self.inner.name} needs them: {why}; what "
            "is known of its convergence and its accuracy does not hold"
        ]

    def network(self, here: HostedClients) -> Network:
        return RobustNetwork(here, self.rule, self.liars)


@runtime_checkable
class Broadcasting(Protocol):
    """A network that delivers the same row to all out-neighbours as one message."""

    def broadcast(self, **rows: Tensor) -> tuple[Tensor, ...]:
        """Each client's row [n, P] to its out-neighbours; one row per in-edge [f, P]."""
        ...


@dataclass(frozen=True, eq=False)
class RobustNetwork(InnerNetwork):
    """A network that mixes robustly."""

    rule: Rule
    liars: int

    def mix(self, **rows: Sent) -> tuple[Tensor, ...]:
        own = uncoded(rows, "robust mixing")
        arrived = self._received(own)
        return tuple(
            self._mixed(tag, row, there)
            for (tag, row), there in zip(own.items(), arrived, strict=True)
        )

    def _received(self, own: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """The neighbours' rows of each tag, [f, P]."""
        net = self.here.net
        plain = net.network if isinstance(net, LazyNetwork) else net
        if isinstance(plain, Broadcasting):
            return plain.broadcast(**own)
        lift = self.here.graph.lift
        return tuple(evaluated(net.send(tag, lift(rows))) for tag, rows in own.items())

    def _mixed(self, tag: str, own: Tensor, arrived: Tensor) -> Tensor:
        neighbours, weights = self.here.graph.by_slot(arrived, own=own)

        def mixed(own: Tensor, *arguments: Tensor) -> Tensor:
            others, weights = arguments[: len(neighbours)], arguments[len(neighbours) :]
            if self.rule == "trimmed-mean":
                return trimmed_mean(own, others, [weight > 0 for weight in weights], self.liars)
            return centred_clipping(own, others, weights, self.liars)

        out = self.here.nonlinear(
            f"robust {tag}", mixed, own, *neighbours, deterministic=True, public=tuple(weights)
        )
        result: Tensor = evaluated(out)
        return result


def centred_clipping(
    own: Tensor, others: Sequence[Tensor], weights: Sequence[Tensor], liars: int
) -> Tensor:
    """xᵢ + Σ wᵢⱼ (xⱼ − xᵢ) min(1, τᵢ/‖xⱼ − xᵢ‖).

    Args:
        own: Own rows [n, P].
        others: Rows of the k-th neighbours, [n, P] each.
        weights: Their weights [n, 1] each; zero where a client has fewer neighbours.
        liars: b; τᵢ is the distance that b neighbours exceed, or 0 if there are no more than b.
    """
    distances = torch.cat(
        [
            torch.linalg.vector_norm(row - own, dim=1, keepdim=True, dtype=torch.float64)
            for row in others
        ],
        1,
    )
    # What is not a number is farther away than everything else.
    distances = torch.where(distances.isnan(), torch.inf, distances)
    present = torch.cat(list(weights), 1) > 0
    ordered = torch.where(present, distances, -torch.inf).sort(1, descending=True).values
    radius = ordered[:, liars : liars + 1] if liars < len(others) else ordered[:, :0]
    radius = radius.clamp(min=0) if radius.shape[1] else torch.zeros_like(ordered[:, :1])
    out = own
    for row, weight, distance in zip(others, weights, distances.unbind(1), strict=True):
        distance = distance[:, None]
        share = torch.where(distance > radius, radius / distance, 1.0)
        move = torch.where(distance.isfinite(), row - own, 0.0)
        out = out + (weight.to(own.dtype) * share.to(own.dtype)) * move
    return out


def trimmed_mean(
    own: Tensor, others: Sequence[Tensor], present: Sequence[Tensor], liars: int
) -> Tensor:
    """The mean over own and received values without the b largest and smallest, per coordinate.

    Args:
        own: Own rows [n, P].
        others: Rows of the k-th neighbours, [n, P] each.
        present: Whether a client has a k-th neighbour, [n, 1] each.
        liars: b.
    """
    beyond = [
        torch.where(there & ~row.isnan(), row, torch.inf)
        for row, there in zip(others, present, strict=True)
    ]
    ordered = torch.stack([own, *beyond]).sort(0).values
    count = 1 + torch.stack([there.to(torch.int64) for there in present]).sum(0)
    total, kept = torch.zeros_like(own), count - 2 * liars
    for rank, values in enumerate(ordered):
        inside = (rank >= liars) & (rank < count - liars)
        total = total + torch.where(inside, values, 0.0)
    return torch.where(kept > 0, total / kept.clamp(min=1).to(own.dtype), own)
