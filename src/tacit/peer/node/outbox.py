"""What a node has written and others may still ask for.

A letter stays until everybody who may want it has saved, for good, an iteration that comes after it: until then a
neighbour that crashes asks for it again. Nothing is ever pushed, so that asking twice does no harm.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tacit.peer.wire.frames import Address, Rejected, WireMessage


@dataclass
class Readers:
    """How far one neighbour is: what it was given, and what it has saved."""

    delivered: int = -1  # tick of the newest letter that it was given to the end
    saved: int = -1  # tick up to which it will never ask again


@dataclass
class Outbox:
    """The letters of the current generation, for the neighbours `readers`. Safe for threads."""

    generation: int
    readers: dict[str, Readers]
    _letters: dict[tuple[Address, str], WireMessage] = field(default_factory=dict)
    _sizes: Counter[str] = field(
        default_factory=Counter
    )  # bytes of the letters to each; to all, under ""
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _closed: bool = False

    @classmethod
    def to(cls, generation: int, names: Iterable[str]) -> Outbox:
        """An empty outbox of a generation."""
        return cls(generation, {name: Readers() for name in names})

    def post(self, letter: WireMessage) -> None:
        """Put a letter out; one that is there already, as after a restart, is replaced."""
        key = (letter.envelope.address, letter.envelope.receiver)
        with self._changed:
            self._drop(key)
            self._letters[key] = letter
            self._sizes[letter.envelope.receiver] += len(letter.frame)
            self._changed.notify_all()

    def take(
        self, address: Address, reader: str, alive: Callable[[], bool], patience: float
    ) -> WireMessage | None:
        """The letter at an address for a reader, waiting for it up to `patience` seconds.

        None if it is not written yet, or the outbox is closed, or the reader is not `alive` any more. A letter that is
        gone for good is refused.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or not alive() or self._find(address, reader) is not None,
                patience,
            )
            letter = self._find(address, reader)
            if letter is None and address.tick <= self.readers[reader].saved:
                raise Rejected(
                    "past",
                    f"{reader} has said that it saved iteration {self.readers[reader].saved}",
                )
            return letter

    def delivered(self, reader: str, tick: int) -> None:
        """A reader was given all of a letter."""
        with self._changed:
            state = self.readers[reader]
            state.delivered = max(state.delivered, tick)

    def saved(self, reader: str, tick: int) -> None:
        """A reader has saved an iteration; it cannot have saved one whose letters it was not given."""
        with self._changed:
            state = self.readers[reader]
            said = min(tick, state.delivered)
            if said > state.saved:
                state.saved = said
                self._prune()
                self._changed.notify_all()

    def wake(self) -> None:
        """Let everybody who waits look again."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Let nobody wait any longer."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def held(self) -> list[WireMessage]:
        """All letters, in order of address."""
        with self._changed:
            return [self._letters[key] for key in sorted(self._letters)]

    @property
    def bytes(self) -> int:
        """How much memory the letters take."""
        with self._changed:
            return self._sizes.total()

    def wait_for_room(self, limit: int, patience: float) -> list[str]:
        """Wait until we keep less than `limit` bytes for every reader, or few letters; for whom it is more.

        For each of them alone, because each saves when enough has come from one neighbour: it knows of no other edge.
        """

        def crowded() -> list[str]:
            if len({address.tick for address, _ in self._letters}) <= 2:
                return []
            return [name for name in self.readers if self._sizes[""] + self._sizes[name] >= limit]

        with self._changed:
            self._changed.wait_for(lambda: self._closed or not crowded(), patience)
            return [] if self._closed else crowded()

    def _find(self, address: Address, reader: str) -> WireMessage | None:
        return self._letters.get((address, reader)) or self._letters.get((address, ""))

    def _prune(self) -> None:
        everybody = min(state.saved for state in self.readers.values())
        for address, receiver in list(self._letters):
            limit = self.readers[receiver].saved if receiver else everybody
            if address.tick <= limit:
                self._drop((address, receiver))

    def _drop(self, key: tuple[Address, str]) -> None:
        if (letter := self._letters.pop(key, None)) is not None:
            self._sizes[letter.envelope.receiver] -= len(letter.frame)
