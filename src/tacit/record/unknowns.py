"""Names for what a run is made of: first models, gradients, noise, and what non-linear steps gave.

Everything a client says is a linear combination of these. A transcript keeps the numbers of some under their names;
the audit runs an algorithm on the names alone.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from torch import Tensor

Kind = Literal["theta0", "gradient", "noise", "nonlinear"]
NOBODY = -1


class Unknown(NamedTuple):
    """One row that a client knows and others may not.

    `when` is the number of the batch for gradients, the tick for noise and non-linear steps (0 in `start`, t + 1 in
    step t). Noise that two clients share belongs to `client` and `other`.
    """

    kind: Kind
    when: int
    client: int
    other: int = NOBODY
    tag: str = ""

    def known_to(self, clients: frozenset[int]) -> bool:
        """Whether one of the clients has it by itself."""
        return self.client in clients or self.other in clients

    def __str__(self) -> str:
        symbol = {"theta0": "θ⁰", "gradient": "g"}.get(self.kind, self.tag)
        when = "" if self.kind == "theta0" else f"({self.when})"
        whose = f"{self.client}" if self.other == NOBODY else f"{self.client}→{self.other}"
        return f"{symbol}[{whose}]{when}"


def of_clients(kind: Kind, when: int, ids: Tensor, tag: str = "") -> list[Unknown]:
    """A row each of the clients `ids`."""
    return [Unknown(kind, when, client, NOBODY, tag) for client in ids.tolist()]


def of_noise(tag: str, tick: int, source: Tensor, target: Tensor | None) -> list[Unknown]:
    """Noise of clients, or of the pairs (source, target)."""
    if target is None:
        return of_clients("noise", tick, source, tag)
    pairs = zip(source.tolist(), target.tolist(), strict=True)
    return [Unknown("noise", tick, client, other, tag) for client, other in pairs]
