"""How long a node has been in its present iteration, and whether that is too long."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

RECENT = 20  # iterations
FACTOR = 10.0  # times the longest recent iteration
MIN_SECONDS = 60.0
START_SECONDS = 300.0  # for neighbours to be there before the first iteration


class IterationClock:
    """One thread calls `start`, `advance` and `stop`; any may ask."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._since = now, now()
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._runs = True

    def start(self) -> None:
        """Training starts, or goes on under another roster."""
        self._since, self._runs = self._now(), True

    def advance(self) -> None:
        """An iteration has ended."""
        now = self._now()
        self._recent.append(now - self._since)
        self._since = now

    def stop(self) -> None:
        """The run has ended: nothing can be late any more."""
        self._runs = False

    def limit(self) -> float:
        """The most seconds between two iterations that are not a stall."""
        recent = list(self._recent)
        return max(MIN_SECONDS, FACTOR * max(recent)) if recent else START_SECONDS

    def stalled_for(self, *, waits: bool) -> float:
        """Seconds since the last iteration if they are too many, otherwise 0.

        The first iteration may take any time, unless the node `waits` for others.
        """
        if not self._runs or not (self._recent or waits):
            return 0.0
        elapsed = self._now() - self._since
        return elapsed if elapsed > self.limit() else 0.0
