"""Robust mixing: liars among the neighbours change what a client computes by a bounded amount.

Plain mixing Σⱼ wᵢⱼ xⱼ gives a neighbour that sends −100 xⱼ full control. Two rules bound it, for at
most b liars among a client's neighbours, with the client's own row as the point to trust:

**Centred clipping** (He, Karimireddy and Jaggi 2022) pulls differences to the own row into a ball,

    xᵢ + Σⱼ wᵢⱼ (xⱼ − xᵢ) min(1, τᵢ/‖xⱼ − xᵢ‖),

where τᵢ is the (dᵢ − b)-th smallest of the dᵢ distances: no liar moves the result by more than
wᵢⱼ times the distance to some honest neighbour. Works for b < dᵢ, and is plain mixing for b = 0.

**Trimmed mean** (Yin et al. 2018) drops, coordinate by coordinate, the b largest and the b smallest
of the dᵢ + 1 values, and averages the rest. Needs 2b ≤ dᵢ. Each coordinate of the result is between
two honest values.

Both are functions of own and received rows that are not linear: the audit treats the result as a
new unknown that follows from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from tacit.algorithms.wrapped import WrappedAlgorithm
from tacit.core.checks import check_choice, check_count
from tacit.core.errors import Misuse
from tacit.core.fixed_point import IntegerRows
from tacit.core.here import Network
from tacit.core.hosted_clients import HostedClients
from tacit.core.rows import CodedRows, Sent
from tacit.engines.lazy_rows import evaluated
from tacit.graph import Graph

RULES = ("centred-clipping", "trimmed-mean")


@dataclass(frozen=True, eq=False)
class Robust(WrappedAlgorithm):
    """An algorithm that mixes robustly.

    Args:
        inner: An algorithm that communicates by `net.mix`.
        rule: "centred-clipping" or "trimmed-mean".
        liars: The number b of neighbours of a client that may lie.
    """

    rule: Literal["centred-clipping", "trimmed-mean"] = "centred-clipping"
    liars: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("The rule of robust mixing", self.rule, RULES)
        check_count("The number of liars", self.liars, at_least=0)
        if self.inner.needs_total:
            raise Misuse(
                f"{self.inner.name} sums masked rows, and a mask hides a lie as well as the truth: "
                "nobody can tell which row to leave out.",
                "Use an algorithm that mixes, such as dsgt, or no robust mixing.",
            )

    def __repr__(self) -> str:
        return f"{self.inner!r} with {self.rule} against {self.liars}"

    def check_graph(self, graph: Graph) -> None:
        """Raise Misuse if some client has too few neighbours for so many liars."""
        fewest = int(np.bincount(graph.edges[:, 1], minlength=graph.clients).min())
        needed = 2 * self.liars if self.rule == "trimmed-mean" else self.liars + 1
        if fewest < needed:
            raise Misuse(
                f"Some client has {fewest} neighbours, and {self.rule} against {self.liars} liars "
                f"needs {needed}.",
                "Add edges, or assume fewer liars.",
            )

    def network(self, here: HostedClients) -> Network:
        return RobustNetwork(here, self.rule, self.liars)


@dataclass(frozen=True, eq=False)
class RobustNetwork:
    """A network that mixes robustly."""

    here: HostedClients
    rule: str
    liars: int

    def mix(self, **rows: Sent) -> tuple[Tensor, ...]:
        return tuple(self._mixed(tag, sent) for tag, sent in rows.items())

    def send(self, tag: str, edge_rows: Tensor, *, private: bool = False) -> Tensor:
        arrived: Tensor = evaluated(self.here.net.send(tag, evaluated(edge_rows), private=private))
        return arrived

    def total(self, **rows: IntegerRows) -> tuple[Tensor, ...]:
        return tuple(evaluated(total) for total in self.here.net.total(**rows))

    def average(self, **rows: Tensor) -> tuple[Tensor, ...]:
        return tuple(evaluated(mean) for mean in self.here.net.average(**rows))

    def _mixed(self, tag: str, sent: Sent) -> Tensor:
        if isinstance(sent, CodedRows):
            raise Misuse(
                f"{tag!r} is sent in a compressed form, which robust mixing does not take.",
                "Leave out the codec, or the robust mixing.",
            )
        here, graph, rows = self.here, self.here.graph, evaluated(sent)
        arrived = evaluated(here.net.send(tag, graph.lift(rows)))
        neighbours, weights = graph.by_slot(arrived, own=rows)

        def mixed(own: Tensor, *rows: Tensor) -> Tensor:
            present = [weight > 0 for weight in weights]
            if self.rule == "trimmed-mean":
                return trimmed_mean(own, rows, present, self.liars)
            return centred_clipping(own, rows, weights, self.liars)

        out = here.nonlinear(f"robust {tag}", mixed, rows, *neighbours, deterministic=True)
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
    distances = torch.nan_to_num(distances, nan=torch.inf)
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
        torch.where(there, torch.nan_to_num(row, nan=torch.inf), torch.inf)
        for row, there in zip(others, present, strict=True)
    ]
    ordered = torch.stack([own, *beyond]).sort(0).values
    count = 1 + torch.stack([there.to(torch.int64) for there in present]).sum(0)
    total, kept = torch.zeros_like(own), count - 2 * liars
    for place, values in enumerate(ordered):
        inside = (place >= liars) & (place < count - liars)
        total = total + torch.where(inside, values, 0.0)
    return torch.where(kept > 0, total / kept.clamp(min=1).to(own.dtype), own)
