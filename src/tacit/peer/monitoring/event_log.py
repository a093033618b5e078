"""The journal of a node: one JSON object per line, whatever peers may have sent."""

from __future__ import annotations

import json
import math
import select
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

Level = Literal["info", "warning", "error"]

LENGTH = 2_000  # characters of one text
ITEMS = 100  # entries of one list or table
DEPTH = 4  # of lists in lists
KEYS = 1_000  # events whose repetitions are counted at a time
OTHERS = "other"  # the key of all events beyond these


@dataclass
class _Limit:
    """When an event may be said again, and how often it was not said since."""

    until: float
    repeated: int = 0


class EventLog:
    """Writes what happens at the node `name`; never raises, and never waits long for whoever reads the stream."""

    def __init__(
        self,
        stream: TextIO,
        name: str,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._name = name
        self._clock = clock
        self._monotonic = monotonic
        self._lock = (
            threading.RLock()
        )  # a signal's handler may speak while its own thread is speaking
        self._limits: dict[Hashable, _Limit] = {}
        self._lost = 0

    def say(self, event: str, /, level: Level = "info", **fields: Any) -> None:
        """Write one line: when, how bad, who, what, and further fields."""
        with self._lock:
            try:
                self._write(event, level, fields)
                self._lost = 0
            except Exception:  # a closed or full stream must not stop training
                self._lost += 1

    def say_at_most(
        self, seconds: float, key: Hashable, event: str, /, level: Level = "info", **fields: Any
    ) -> None:
        """The same at most once in so many seconds for one key; the next line says how many were left out."""
        with self._lock:
            now = self._monotonic()
            if key not in self._limits and len(self._limits) >= KEYS:
                self._forget(now)
                key = key if len(self._limits) < KEYS else OTHERS
            limit = self._limits.get(key)
            if limit is not None and now < limit.until:
                limit.repeated += 1
                return
            self._limits[key] = _Limit(now + seconds)
            if limit is not None and limit.repeated:
                fields["repeated"] = limit.repeated
            self.say(event, level, **fields)

    def _forget(self, now: float) -> None:
        """Drop the limits that are over, so that they do not fill the memory."""
        self._limits = {key: limit for key, limit in self._limits.items() if now < limit.until}

    def _write(self, event: str, level: Level, fields: dict[str, Any]) -> None:
        moment = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
        line = {
            "time": moment.replace("+00:00", "Z"),
            "level": level,
            "node": plain(self._name),
            "event": plain(event),
        }
        line |= {f"{key}_" if key in line else key: plain(value) for key, value in fields.items()}
        if self._lost:
            line["lost"] = self._lost
        if not _has_room(self._stream, seconds=0.0 if self._lost else 1.0):
            raise BlockingIOError("nobody reads")
        self._stream.write(json.dumps(line, allow_nan=False) + "\n")
        self._stream.flush()


def plain(value: Any, depth: int = DEPTH) -> Any:
    """The value as JSON knows it, no larger than a line should be."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < 1 << 63:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, dict) and depth:
        items = list(value.items())[:ITEMS]
        return {plain(str(key)): plain(entry, depth - 1) for key, entry in items}
    if isinstance(value, list | tuple | set | frozenset) and depth:
        entries = [plain(entry, depth - 1) for entry in list(value)[:ITEMS]]
        return entries if len(value) <= ITEMS else [*entries, f"and {len(value) - ITEMS} more"]
    return _cut(value)


def _cut(value: Any) -> str:
    try:
        text = str(value)
    except Exception:  # whatever an object does when it is asked for words
        text = f"a {type(value).__name__} without words"
    return text if len(text) <= LENGTH else text[: LENGTH - 1] + "…"


def _has_room(stream: TextIO, seconds: float) -> bool:
    """Whether the stream takes a line within this time: a pipe that nobody reads is full one day."""
    try:
        waiting = select.poll()
        waiting.register(stream.fileno(), select.POLLOUT)
    except (AttributeError, OSError, ValueError):  # no file behind it, or a system without poll
        return True
    return bool(waiting.poll(1000 * seconds))
