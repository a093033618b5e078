"""Who has everything it needs from this node: written down, because a node that comes back must still know."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

from tacit.peer.private_files import replace

GONE = 30.0  # seconds after which a neighbour that said farewell and does not answer is taken to be gone


class Farewells:
    """The neighbours that have finished an epoch and saved its end."""

    def __init__(self, path: Path, epoch: int) -> None:
        self._path, self._epoch = path, epoch
        self._lock = threading.Lock()
        self._since: dict[str, float] = {}
        self.names = frozenset(self._read())

    def add(self, name: str, tick: int) -> None:
        """Note a farewell; it is on the disk when this returns."""
        with self._lock:
            if name not in self.names:
                names = self.names | {name}
                replace(self._path, json.dumps({"epoch": self._epoch, "names": sorted(names)}).encode())
                self.names = names

    def gone(self, name: str) -> bool:
        """Whether a neighbour that does not answer has ended: it said farewell, and has been silent for long since."""
        if name not in self.names:
            return False
        first = self._since.setdefault(name, time.monotonic())
        return time.monotonic() - first > GONE

    def _read(self) -> list[str]:
        try:
            told = json.loads(self._path.read_text(encoding="utf-8"))
            return [str(name) for name in told["names"]] if told["epoch"] == self._epoch else []
        except (OSError, ValueError, KeyError, TypeError):
            return []
