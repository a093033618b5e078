"""The log of a node: one JSON object per line, with every value bounded in size."""

from __future__ import annotations

import json
import math
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

Level = Literal["info", "warning", "error"]

MAX_CHARACTERS = 2_000  # of one text
MAX_ITEMS = 100  # of one list or table
MAX_DEPTH = 4  # of nested lists and tables
RECENT = 200  # lines that are kept in memory
MAX_KEYS = 1_000  # throttled keys at a time
OTHER_KEYS = "other"  # the key that all further ones share


@dataclass
class _Throttle:
    until: float
    suppressed: int = 0


class EventLog:
    """Log of the node `name`, safe to use from many threads.

    Logging must not stop training: no method raises, and none waits more than a second for a
    stream that is full. The next line that succeeds counts the lines that were lost.
    """

    def __init__(
        self,
        stream: TextIO,
        name: str,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream, self._name, self._clock, self._monotonic = stream, name, clock, monotonic
        # Reentrant: a signal handler may write while its own thread is writing.
        self._lock = threading.RLock()
        self._throttles: dict[Hashable, _Throttle] = {}
        self._lost = 0
        # The newest lines but those about scores, for the node's own dashboard.
        self.recent: deque[dict[str, Any]] = deque(maxlen=RECENT)

    def write(self, event: str, /, level: Level = "info", **fields: Any) -> None:
        """Write one line: time, level, node, event, then the fields."""
        with self._lock:
            try:
                self._write_line(event, level, fields)
                self._lost = 0
            except Exception:
                self._lost += 1

    def write_throttled(
        self, seconds: float, key: Hashable, event: str, /, level: Level = "info", **fields: Any
    ) -> None:
        """Write at most one line per key and period, with the number of suppressed ones.

        Args:
            seconds: Length of the period.
            key: Identifies lines that repeat each other.
            event: What happened.
            level: "info", "warning" or "error".
            **fields: Further fields; `repeated` is added if lines were suppressed before.
        """
        with self._lock:
            now = self._monotonic()
            if key not in self._throttles and len(self._throttles) >= MAX_KEYS:
                self._throttles = {k: t for k, t in self._throttles.items() if now < t.until}
                key = key if len(self._throttles) < MAX_KEYS else OTHER_KEYS
            throttle = self._throttles.get(key)
            if throttle is not None and now < throttle.until:
                throttle.suppressed += 1
                return
            self._throttles[key] = _Throttle(now + seconds)
            if throttle is not None and throttle.suppressed:
                fields["repeated"] = throttle.suppressed
            self.write(event, level, **fields)

    def _write_line(self, event: str, level: Level, fields: dict[str, Any]) -> None:
        moment = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
        line = {
            "time": moment.replace("+00:00", "Z"),
            "level": level,
            "node": to_json_value(self._name),
            "event": to_json_value(event),
        }
        for key, value in fields.items():
            line[f"{key}_" if key in line else key] = to_json_value(value)
        if event != "evaluated":
            self.recent.append(dict(line))
        if self._lost:
            line["lost"] = self._lost
        if not _is_writable(self._stream, seconds=0.0 if self._lost else 1.0):
            raise BlockingIOError("the stream is full")
        self._stream.write(json.dumps(line, allow_nan=False) + "\n")
        self._stream.flush()


def to_json_value(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Convert any value to one that JSON can hold, cut to the limits of this module."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < 1 << 63:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, dict) and depth:
        items = list(value.items())[:MAX_ITEMS]
        return {to_json_value(str(key)): to_json_value(entry, depth - 1) for key, entry in items}
    if isinstance(value, list | tuple | set | frozenset) and depth:
        entries = [to_json_value(entry, depth - 1) for entry in list(value)[:MAX_ITEMS]]
        omitted = len(value) - len(entries)
        return [*entries, f"and {omitted} more"] if omitted else entries
    try:
        text = str(value)
    except Exception:
        text = f"unprintable {type(value).__name__}"
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"


def _is_writable(stream: TextIO, seconds: float) -> bool:
    """Whether the stream accepts a line within this time. A pipe without a reader fills up."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), select.POLLOUT)
    # No file behind the stream, or a system without poll.
    except (AttributeError, OSError, ValueError):
        return True
    return bool(poll.poll(1000 * seconds))
