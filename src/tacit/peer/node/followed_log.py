"""The operator's log at a running node: what it says about certificates and addresses now."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from tacit.core.errors import Misuse
from tacit.peer.federation.change_log import ChangeLog, Entry
from tacit.peer.federation.folders import NodeFolder
from tacit.peer.federation.manifest import Manifest
from tacit.peer.federation.roster import Member
from tacit.peer.monitoring.event_log import EventLog

Subscriber = Callable[[Sequence[Entry]], None]


class FollowedLog:
    """The newest log that this node knows. A change takes effect at once; then it is stored.

    Attributes:
        log: The verified log.
        changed: Set when there are entries that neighbours may not know yet.
    """

    def __init__(self, folder: NodeFolder, event_log: EventLog) -> None:
        self._folder, self._event_log = folder, event_log
        self.log: ChangeLog = folder.log()
        self.changed = threading.Event()
        self._ca = folder.ca()
        self._subscribers: list[Subscriber] = []
        self._lock = threading.Lock()
        self._stamp, self._is_stored = self._read_stamp(), True

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call a function with all new entries; returns what ends that."""
        with self._lock:
            self._subscribers.append(subscriber)

        def unsubscribe() -> None:
            with self._lock, suppress(ValueError):
                self._subscribers.remove(subscriber)

        return unsubscribe

    def update(self, text: bytes) -> bool:
        """Follow a longer log; return whether it was. Raises Misuse unless it extends ours."""
        with self._lock:
            longer = self.log.updated(text, self._folder.verify)
            new = longer.entries[self.log.number :]
            self.log, subscribers = longer, list(self._subscribers)
        if not new:
            return False
        for entry in new:
            self._event_log.write(
                "change by the operator", number=entry.number, change=entry.describe()
            )
        for subscriber in subscribers:
            subscriber(new)
        self.changed.set()
        self._store()
        return True

    def refresh(self) -> None:
        """Follow the log in the folder, which `tacit member join` may have replaced.

        If ours could not be stored before, this tries again.
        """
        stamp = self._read_stamp()
        if stamp == self._stamp and stamp is not None and self._is_stored:
            return
        try:
            self.update((self._folder.path / "federation.log").read_bytes())
            self._store()
            self._stamp = stamp
        except (Misuse, OSError) as problem:
            self._log_problem(problem)

    def address(self, member: Member, manifest: Manifest) -> str:
        """The current address of a member."""
        return self.log.addresses(manifest.operator_hash).get(member.name, member.address)

    def roots(self, name: str) -> bytes:
        """The certificates that a neighbour is trusted by; see ChangeLog.trusted_roots."""
        return self.log.trusted_roots(name, self._ca)

    def _store(self) -> None:
        """Store the log. If that fails, it is tried again."""
        self._is_stored = False
        try:
            self._folder.update_log(self.log.text)
            self._is_stored = True
        except (Misuse, OSError) as problem:
            self._log_problem(problem)

    def _log_problem(self, problem: Exception) -> None:
        self._event_log.write_throttled(
            60, "log not stored", "operator's log not stored", "warning", why=str(problem)
        )

    def _read_stamp(self) -> object:
        try:
            one = (self._folder.path / "federation.log").stat()
        except OSError:
            return None
        return (one.st_ino, one.st_mtime_ns, one.st_size)
