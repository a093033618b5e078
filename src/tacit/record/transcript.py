"""What was said: every message of a run, kept by a network that passes all on to another."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from tacit.clients import Network
from tacit.errors import unknown
from tacit.rows import Sent, received

Verb = Literal["mix", "send", "average"]


@dataclass(frozen=True, eq=False)
class Message:
    """Rows that were sent together: of all clients with `mix` and `average` [n, P], of all out-edges with `send`.

    With `mix` each client's row went to all of its out-neighbours, with `average` to the server. Rows that travel
    encoded are kept as received. `tick` is 0 in `start` and t + 1 in step t.
    """

    tick: int
    verb: Verb
    tag: str
    rows: Tensor
    private: bool


@dataclass(eq=False)
class Transcript:
    """The messages of a run in order."""

    messages: list[Message] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"Transcript({len(self.messages)} messages: {', '.join(self.tags)})"

    @property
    def tags(self) -> list[str]:
        """What messages were sent under, in the order of their first use."""
        return list(dict.fromkeys(message.tag for message in self.messages))

    def of(self, tag: str) -> list[Message]:
        """The messages with a tag, e.g. "gamma"; a tag that none has is refused."""
        if tag not in self.tags:
            raise unknown(f"No message has the tag {tag!r}.", tag, self.tags)
        return [message for message in self.messages if message.tag == tag]


class Recorder:
    """A network that writes down what passes through it."""

    def __init__(self, network: Network, transcript: Transcript) -> None:
        self.tick = 0
        self._network = network
        self._transcript = transcript

    def mix(self, **rows: Sent) -> tuple[Tensor, ...]:
        """As the network behind it."""
        for tag, sent in rows.items():
            self._keep("mix", tag, received(sent))
        return self._network.mix(**rows)

    def send(self, tag: str, edge_rows: Tensor, *, private: bool = False) -> Tensor:
        """As the network behind it."""
        self._keep("send", tag, edge_rows, private)
        return self._network.send(tag, edge_rows, private=private)

    def average(self, **rows: Tensor) -> tuple[Tensor, ...]:
        """As the network behind it."""
        for tag, sent in rows.items():
            self._keep("average", tag, sent)
        return self._network.average(**rows)

    def _keep(self, verb: Verb, tag: str, rows: Tensor, private: bool = False) -> None:
        self._transcript.messages.append(Message(self.tick, verb, tag, rows.clone(), private))
