"""Clients that lie, for simulations: what robust mixing is measured against.

`Lying` runs the `start` and `step` of the algorithm that it wraps. Liars follow it, but what they
send is changed on its way out: by mixing as by messages over single edges. Their own state is as if
they had told the truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tacit.algorithms.wrapped import WrappedAlgorithm
from tacit.core.checks import check_choice, check_positive
from tacit.core.errors import Misuse
from tacit.core.here import Network
from tacit.core.hosted_clients import HostedClients
from tacit.core.noise import Gaussian
from tacit.core.rows import Sent
from tacit.engines.inner_network import InnerNetwork, uncoded
from tacit.engines.lazy_rows import evaluated
from tacit.graph import Graph

Lie = Literal["sign-flip", "noise"]
LIES = ("sign-flip", "noise")


@dataclass(frozen=True, eq=False)
class Lying(WrappedAlgorithm):
    """An algorithm some of whose clients lie.

    Args:
        inner: The algorithm, with robust mixing or without.
        liars: The clients that lie.
        lie: "sign-flip" sends −`scale` times the row, "noise" adds Gaussian noise of this scale.
        scale: How much.

    >>> import torch, tacit
    >>> from tacit.engines.lying import Lying
    >>> task = tacit.quadratic(torch.eye(2).repeat(6, 1, 1), torch.ones(6, 2))
    >>> graph = tacit.Topology.complete(6).mixing("metropolis")
    >>> algorithm = Lying(tacit.Robust(tacit.DSG(lr=0.2), "trimmed-mean"), liars=(3,))
    >>> run = tacit.run(task, algorithm, graph, steps=60)
    >>> bool((run.theta[0] - 1).abs().max() < 0.1)
    True
    """

    liars: tuple[int, ...] = ()
    lie: Lie = "sign-flip"
    scale: float = 100.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("The lie", self.lie, LIES)
        check_positive("scale", self.scale, example=100.0)

    def __repr__(self) -> str:
        return f"{self.inner!r} with liars {list(self.liars)} ({self.lie} {self.scale:g})"

    def check_graph(self, graph: Graph) -> None:
        """Raise Misuse also if a liar is no client."""
        super().check_graph(graph)
        if wrong := [liar for liar in self.liars if not 0 <= liar < graph.clients]:
            raise Misuse(
                f"Liar {wrong[0]} is not one of {graph.clients} clients.", "Name clients from 0 on."
            )

    def network(self, here: HostedClients) -> Network:
        return LyingNetwork(here, self)


@dataclass(frozen=True, eq=False)
class LyingNetwork(InnerNetwork):
    """The network of an algorithm, with rows of liars changed."""

    lying: Lying

    def mix(self, **rows: Sent) -> tuple[Tensor, ...]:
        honest = uncoded(rows, "lying")
        ids = self.here.graph.ids
        told = {tag: self._told(tag, row, ids) for tag, row in honest.items()}
        mixed = self.here.net.mix(**told)
        return tuple(
            # Liars themselves continue from their own rows.
            evaluated(out) + self.here.graph.own(honest[tag] - told[tag])
            for tag, out in zip(honest, mixed, strict=True)
        )

    def send(self, tag: str, edge_rows: Tensor, *, private: bool = False) -> Tensor:
        rows = self._told(tag, evaluated(edge_rows), self.here.graph.out_source)
        return super().send(tag, rows, private=private)

    def _told(self, tag: str, rows: Tensor, senders: Tensor) -> Tensor:
        """What arrives of rows [k, P] that these clients [k] send."""
        liars = torch.tensor(self.lying.liars, device=senders.device, dtype=senders.dtype)
        lies = torch.isin(senders, liars)[:, None]
        scale = self.lying.scale
        if self.lying.lie == "sign-flip":
            return torch.where(lies, -scale * rows, rows)
        # One draw per client: a liar tells all neighbours the same.
        noise = self.here.noise(f"lie {tag}", Gaussian(scale), rows.shape[1])
        row = torch.searchsorted(self.here.graph.ids, senders)
        return torch.where(lies, rows + noise[row], rows)
