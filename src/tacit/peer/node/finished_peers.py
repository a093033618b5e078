"""Who needs nothing more: written down, because a node that comes back must still know."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

from tacit.core.storage import write_text

GONE = 30.0  # seconds after which a neighbour that said farewell and does not answer is taken to be gone


class FinishedPeers:
    """At the end of a generation: the neighbours that have saved it (`names`), and those that we have told so (`told`)."""

    def __init__(self, path: Path, generation: int) -> None:
        self._path, self._generation = path, generation
        self._lock = threading.Lock()
        self._since: dict[str, float] = {}
        self.names, self.told = (frozenset(self._read(key)) for key in ("names", "told"))

    def add(self, name: str) -> None:
        """Note that a neighbour has ended; it is on the disk when this returns."""
        with self._lock:
            if name not in self.names:
                self._write(self.names | {name}, self.told)
                self.names |= {name}

    def add_told(self, name: str) -> None:
        """Note that a neighbour knows that we have ended."""
        with self._lock:
            self._write(self.names, self.told | {name})
            self.told |= {name}

    def gone(self, name: str) -> bool:
        """Whether a neighbour that does not answer has ended: it said farewell, and has been silent for long since."""
        if name not in self.names:
            return False
        first = self._since.setdefault(name, time.monotonic())
        return time.monotonic() - first > GONE

    def _write(self, names: frozenset[str], told: frozenset[str]) -> None:
        facts = {"generation": self._generation, "names": sorted(names), "told": sorted(told)}
        write_text(self._path, json.dumps(facts), durable=True)

    def _read(self, key: str) -> list[str]:
        try:
            facts = json.loads(self._path.read_text(encoding="utf-8"))
            return (
                [str(name) for name in facts[key]]
                if facts["generation"] == self._generation
                else []
            )
        except (OSError, ValueError, KeyError, TypeError):
            return []
