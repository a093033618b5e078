"""Ends a stream on which a message does not arrive in time."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

# A neighbour without the message sends a notice every two seconds, and a chunk of 1 MiB takes a
# minute over a slow modem.
SILENCE_SECONDS = 60.0
MIN_BYTES_PER_SECOND = 16_384.0  # of a whole message, after its first minute
CHECK_SECONDS = 1.0


class StreamDeadline:
    """A deadline that one thread moves. A thread of its own calls `expire` when it has passed.

    gRPC has deadlines for whole calls only, and one stream carries the messages of a whole run.
    """

    def __init__(self, expire: Callable[[], None]) -> None:
        self.has_expired = False
        self._expire = expire
        self._silence, self._whole = math.inf, math.inf
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Expect a message or a notice."""
        self.has_expired, self._whole = False, math.inf
        self.extend()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="deadline", daemon=True)
            self._thread.start()

    def extend(self) -> None:
        """Something has arrived."""
        self._silence = time.monotonic() + SILENCE_SECONDS

    def expect_whole(self, size: int) -> None:
        """A message of so many bytes has begun."""
        self._whole = time.monotonic() + SILENCE_SECONDS + size / MIN_BYTES_PER_SECOND

    def stop(self) -> None:
        """Expect nothing."""
        self._silence = self._whole = math.inf

    def close(self) -> None:
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(CHECK_SECONDS):
            if time.monotonic() > min(self._silence, self._whole) and not self.has_expired:
                self.has_expired = True
                self._expire()
