"""The messages that a node keeps for its neighbours.

A message stays until every reader has saved a later iteration: a neighbour that crashes before that
fetches the message again. Neighbours pull and the node never pushes, so a repeated request does no
harm.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tacit.peer.wire.messages import ExchangeId, Rejected, WireMessage

# Kept whatever their size: neighbours may drop messages two checkpoints later, and those of large
# models are ten iterations apart.
MIN_TICKS = 22


@dataclass
class ReaderProgress:
    """The newest tick that a neighbour has received completely, and the newest it has saved."""

    delivered: int = -1
    saved: int = -1


class Outbox:
    """The messages of one generation for the neighbours `readers`. Safe for threads."""

    def __init__(self, readers: Iterable[str]) -> None:
        self.readers = {name: ReaderProgress() for name in readers}
        # By exchange and receiver; the receiver of a message to all neighbours is "".
        self._messages: dict[tuple[ExchangeId, str], WireMessage] = {}
        self._sizes: Counter[str] = Counter()  # bytes by receiver
        self._changed = threading.Condition()
        self._closed = False

    def put(self, message: WireMessage) -> None:
        """Add a message. After a restart it may replace the same message."""
        key = (message.envelope.exchange, message.envelope.receiver)
        with self._changed:
            self._drop(key)
            self._messages[key] = message
            self._sizes[message.envelope.receiver] += len(message.frame)
            self._changed.notify_all()

    def replace(self, message: WireMessage) -> None:
        """Use another object for a message of the same content, if the message is still kept."""
        key = (message.envelope.exchange, message.envelope.receiver)
        with self._changed:
            if key in self._messages:
                self._messages[key] = message

    def get(
        self, exchange: ExchangeId, reader: str, is_active: Callable[[], bool], timeout: float
    ) -> WireMessage | None:
        """Wait up to `timeout` seconds for a reader's message.

        Returns None if the message does not exist yet, the outbox is closed or the reader's call is
        no longer active. Raises Rejected if the message was dropped because the reader saved it.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or not is_active() or self._find(exchange, reader) is not None,
                timeout,
            )
            message = self._find(exchange, reader)
            saved = self.readers[reader].saved
            if message is None and exchange.tick <= saved:
                raise Rejected("past", f"{reader} has already saved iteration {saved}")
            return message

    def mark_delivered(self, reader: str, tick: int) -> None:
        """Note that a reader has received a whole message."""
        with self._changed:
            progress = self.readers[reader]
            progress.delivered = max(progress.delivered, tick)

    def mark_saved(self, reader: str, tick: int) -> None:
        """Note that a reader has saved an iteration, at most the newest it has received."""
        with self._changed:
            progress = self.readers[reader]
            saved = min(tick, progress.delivered)
            if saved > progress.saved:
                progress.saved = saved
                self._prune()
                self._changed.notify_all()

    def wake(self) -> None:
        """Make every waiting thread check again whether its reader is active."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """End all waiting."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def messages(self) -> list[WireMessage]:
        """All messages in the order of their exchanges."""
        with self._changed:
            return [self._messages[key] for key in sorted(self._messages)]

    @property
    def size(self) -> int:
        """Bytes of all messages."""
        with self._changed:
            return self._sizes.total()

    def wait_for_space(self, limit: int, timeout: float) -> list[str]:
        """Wait until less than `limit` bytes are kept for each reader; return the readers above it.

        The limit is per reader, because a reader saves when it has received enough over one edge
        and cannot see the others. Messages of MIN_TICKS ticks are kept whatever their size.
        """

        def crowded() -> list[str]:
            common, sizes = self._sizes[""], self._sizes
            late = [name for name in self.readers if common + sizes[name] >= limit]
            if late and len({exchange.tick for exchange, _ in self._messages}) <= MIN_TICKS:
                return []
            return late

        with self._changed:
            self._changed.wait_for(lambda: self._closed or not crowded(), timeout)
            return [] if self._closed else crowded()

    def _find(self, exchange: ExchangeId, reader: str) -> WireMessage | None:
        return self._messages.get((exchange, reader)) or self._messages.get((exchange, ""))

    def _prune(self) -> None:
        saved_by_all = min(progress.saved for progress in self.readers.values())
        for exchange, receiver in list(self._messages):
            saved = self.readers[receiver].saved if receiver else saved_by_all
            if exchange.tick <= saved:
                self._drop((exchange, receiver))

    def _drop(self, key: tuple[ExchangeId, str]) -> None:
        if (message := self._messages.pop(key, None)) is not None:
            self._sizes[message.envelope.receiver] -= len(message.frame)
