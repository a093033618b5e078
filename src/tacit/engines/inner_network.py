"""The network that a wrapped algorithm is given: that of its clients, but for how it mixes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from tacit.core.errors import Misuse
from tacit.core.fixed_point import IntegerRows
from tacit.core.hosted_clients import HostedClients
from tacit.core.rows import CodedRows, Sent
from tacit.engines.lazy_rows import evaluated


@dataclass(frozen=True, eq=False)
class InnerNetwork(ABC):
    """The network of some clients, with computed rows in place of lazy ones."""

    here: HostedClients

    @abstractmethod
    def mix(self, **rows: Sent) -> tuple[Tensor, ...]:
        """As `Network.mix`, in another way."""

    def send(self, tag: str, edge_rows: Tensor, *, private: bool = False) -> Tensor:
        arrived: Tensor = evaluated(self.here.net.send(tag, evaluated(edge_rows), private=private))
        return arrived

    def total(self, **rows: IntegerRows) -> tuple[Tensor, ...]:
        return tuple(evaluated(total) for total in self.here.net.total(**rows))

    def average(self, **rows: Tensor) -> tuple[Tensor, ...]:
        return tuple(evaluated(mean) for mean in self.here.net.average(**rows))


def uncoded(rows: dict[str, Sent], what: str) -> dict[str, Tensor]:
    """The rows to mix, computed; `what` is the mixing that cannot take a codec's rows."""
    for tag, sent in rows.items():
        if isinstance(sent, CodedRows):
            raise Misuse(
                f"{tag!r} is sent in a compressed form, which {what} does not take.",
                f"Leave out the codec, or {what}.",
            )
    return {tag: evaluated(sent) for tag, sent in rows.items()}
