"""Names of the rows that a run is made of: models, gradients, noise, masks, non-linear results.

Every message is a linear combination of them. A transcript stores numbers under these names; the
audit runs an algorithm on the names alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from torch import Tensor

Kind = Literal["theta0", "gradient", "noise", "mask", "nonlinear"]
NO_CLIENT = -1
EVERY_CLIENT = -2


class Unknown(NamedTuple):
    """One row that a client knows and others may not.

    `when` is the number of the batch for gradients and the tick for noise and non-linear steps
    (0 in `start`, t + 1 in step t). Noise and masks that two clients share belong to `client` and
    `other`. The first model that all clients start from belongs to EVERY_CLIENT.
    """

    kind: Kind
    when: int
    client: int
    other: int = NO_CLIENT
    tag: str = ""

    def known_to(self, clients: frozenset[int]) -> bool:
        """Whether the row belongs to one of the clients."""
        if self.client == EVERY_CLIENT:
            return bool(clients)
        return self.client in clients or self.other in clients

    def __str__(self) -> str:
        return self.text()

    def text(self, names: Sequence[str] = ()) -> str:
        """The row as a symbol, such as "g[0](3)", with clients by name if they have names."""
        symbol = {"theta0": "θ⁰", "gradient": "g"}.get(self.kind, self.tag)
        if self.client == EVERY_CLIENT:
            return symbol
        when = "" if self.kind == "theta0" else f"({self.when})"
        owners = [client for client in (self.client, self.other) if client != NO_CLIENT]
        owner = "→".join(names[client] if names else str(client) for client in owners)
        return f"{symbol}[{owner}]{when}"


def client_unknowns(kind: Kind, when: int, ids: Tensor, tag: str = "") -> list[Unknown]:
    return [Unknown(kind, when, client, NO_CLIENT, tag) for client in ids.tolist()]


def first_models(ids: Tensor, common: bool) -> list[Unknown]:
    """The first model of each client in `ids`: one unknown for all if they start alike."""
    return [Unknown("theta0", 0, EVERY_CLIENT if common else client) for client in ids.tolist()]


def noise_unknowns(
    tag: str, tick: int, source: Tensor, target: Tensor | None, kind: Kind = "noise"
) -> list[Unknown]:
    """Noise, or masks, of the clients in `source` or of the pairs (source, target)."""
    if target is None:
        return client_unknowns(kind, tick, source, tag)
    pairs = zip(source.tolist(), target.tolist(), strict=True)
    return [Unknown(kind, tick, client, other, tag) for client, other in pairs]
