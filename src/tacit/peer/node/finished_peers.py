"""Which neighbours have finished, and which know that this node has."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

from tacit.core.storage import write_text

SILENCE_SECONDS = 30.0  # without answer, after which a finished neighbour counts as stopped


class FinishedPeers:
    """Neighbours that have finished a generation, and neighbours that know that this node has.

    They are on disk, so that a restarted node still has them.
    """

    def __init__(self, path: Path, generation: int) -> None:
        self._path, self._generation = path, generation
        self._lock = threading.Lock()
        self._unanswered_since: dict[str, float] = {}
        self.finished, self.notified = self._read("finished"), self._read("notified")

    def add(self, name: str) -> None:
        """Note that a neighbour has finished; it is on disk when this returns."""
        with self._lock:
            if name not in self.finished:
                self._write(self.finished | {name}, self.notified)

    def add_notified(self, name: str) -> None:
        """Note that a neighbour knows that this node has finished."""
        with self._lock:
            self._write(self.finished, self.notified | {name})

    def has_stopped(self, name: str) -> bool:
        """Whether a neighbour that does not answer has stopped: finished, and silent for long."""
        if name not in self.finished:
            return False
        first = self._unanswered_since.setdefault(name, time.monotonic())
        return time.monotonic() - first > SILENCE_SECONDS

    def _write(self, finished: frozenset[str], notified: frozenset[str]) -> None:
        names = {"finished": sorted(finished), "notified": sorted(notified)}
        content = json.dumps({"generation": self._generation, **names})
        write_text(self._path, content, durable=True)
        self.finished, self.notified = finished, notified

    def _read(self, key: str) -> frozenset[str]:
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
            same = content["generation"] == self._generation
            return frozenset(map(str, content[key] if same else ()))
        except (OSError, ValueError, KeyError, TypeError):
            return frozenset()
