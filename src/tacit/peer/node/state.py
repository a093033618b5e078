"""What the threads of a node share: where it is, what it has written, and what was told to it from outside."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import tacit
from tacit.core.errors import Misuse
from tacit.peer.federation.manifest import Manifest
from tacit.peer.federation.operator import NodeFolder
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.monitoring.metrics import Metrics
from tacit.peer.node.outbox import Outbox
from tacit.peer.wire import wire_pb2 as wire

PROTOCOL = 1
SILENCE = 1.0  # seconds without a word from a neighbour after which a node says that it waits


@dataclass(frozen=True, eq=False)
class ActiveRoster:
    """By which roster a node goes now, and the letters it wrote under it."""

    manifest: Manifest
    outbox: Outbox


@dataclass(frozen=True)
class NodeProgress:
    """How far a node is, for whoever asks."""

    phase: str = "starting"
    step: int = 0
    steps: int = 0
    round_length: int = 1
    saved: int = -1
    loss: float | None = None
    accuracy: float | None = None
    waiting_for: tuple[str, ...] = ()  # neighbours, with what they say of themselves
    blamed: tuple[str, ...] = ()  # who keeps those, as far as is known
    problem: str = ""


@dataclass(frozen=True, eq=False)
class Announced:
    """A signed manifest that is newer than ours."""

    manifest: Manifest
    text: bytes
    signature: bytes


@dataclass(frozen=True)
class Awaited:
    """For whose letters the thread that trains waits, and since when."""

    names: tuple[str, ...] = ()
    since: float = 0.0


def _too_early(name: str) -> None:
    """Nobody is there yet to note a farewell: it will be said again."""
    raise OSError(errno.EAGAIN, "the node is still starting")


@dataclass(eq=False)
class NodeState:
    """Shared by the thread that trains, the threads that serve and those that fetch."""

    folder: NodeFolder
    name: str
    standing: ActiveRoster
    metrics: Metrics
    event_log: EventLog
    parameters: int
    dtype: str
    progress: NodeProgress = NodeProgress()
    awaited: Awaited = Awaited()
    stop: threading.Event = field(default_factory=threading.Event)
    newer: Announced | None = None  # accepted, and not yet gone over to
    farewell: Callable[[str], None] = _too_early  # notes that a neighbour needs nothing more
    _leave: Callable[[], None] = lambda: None  # leaves what the training thread waits for
    _begun: float = field(default_factory=time.monotonic)
    _lock: Any = field(default_factory=threading.RLock)  # a signal may ask to end while it is held

    @property
    def manifest(self) -> Manifest:
        """The manifest the node goes by."""
        return self.standing.manifest

    def report(self, **changes: object) -> None:
        """Note how far the node is."""
        with self._lock:
            self.progress = replace(self.progress, **changes)  # type: ignore[arg-type]

    def now(self) -> NodeProgress:
        """How far the node is. A neighbour that hangs says nothing: then it is known here alone that it is awaited."""
        now, awaited = self.progress, self.awaited
        if not awaited.names or time.monotonic() - awaited.since < SILENCE:
            return now
        told = {
            words.split(" ")[0]: words for words in now.waiting_for
        }  # what some have said of themselves
        late = tuple(told.get(name, name) for name in awaited.names)
        first = awaited.names[0]
        blamed = now.blamed if first in told and now.blamed else (first,)
        return replace(now, phase="waiting", waiting_for=late, blamed=blamed)

    def consider(self, text: bytes, signature: bytes) -> bool:
        """A manifest told from outside: whether it is a newer one, signed by the operator. Refuses a false one."""
        newer = self.newer
        if text == self.manifest.text or (newer is not None and text == newer.text):
            return False
        try:
            found = Announced(self.folder.accept(text, signature), text, signature)
        except Misuse:
            # It may be older than what the operator has put into our folder meanwhile: then that one holds.
            theirs = self.folder.signed()
            if (
                theirs[0] == self.manifest.text
            ):  # known already: no need to parse it for everything false
                raise
            found = Announced(self.folder.manifest(), *theirs)
            if found.manifest.generation <= self.manifest.generation:
                raise
        with (
            self._lock
        ):  # looking the manifest over took a while: the node may have gone over to it meanwhile
            if found.manifest.generation <= max(
                self.manifest.generation, self.newer.manifest.generation if self.newer else 0
            ):
                return False
            self.newer = found
            self._leave()
        names = [member.name for member in found.manifest.members]
        self.event_log.write(
            "roster announced", generation=found.manifest.generation, members=names
        )
        return True

    def enter(self, standing: ActiveRoster) -> None:
        """Go by another roster from now on; what was announced up to it is no news any more."""
        with self._lock:
            self.standing = standing
            if (
                self.newer is not None
                and self.newer.manifest.generation <= standing.manifest.generation
            ):
                self.newer = None

    def on_interrupt(self, leave: Callable[[], None]) -> None:
        """How to leave what the training thread waits for, from now on: at once, if there is a reason already."""
        with self._lock:
            self._leave = leave
            if self.interrupted:
                leave()

    def end(self) -> None:
        """Ask the node to stop."""
        with self._lock:
            self.stop.set()
            self._leave()

    @property
    def interrupted(self) -> bool:
        """Whether to leave what is under way: to stop, or to go over to another roster."""
        return self.stop.is_set() or self.newer is not None

    def greeting(self) -> wire.Greeting:
        """What this node says first."""
        manifest = self.manifest
        return wire.Greeting(
            protocol=PROTOCOL,
            federation=manifest.federation,
            generation=manifest.generation,
            manifest=manifest.hash,
            sections=manifest.sections(),
            parameters=self.parameters,
            dtype=self.dtype,
            version=tacit.__version__,
        )

    def mismatch(self, theirs: wire.Greeting) -> str | None:
        """Why this node and another cannot work together, in words; None if they can or if one has newer news."""
        ours = self.greeting()
        if theirs.protocol != ours.protocol:
            return f"protocol {theirs.protocol} there, {ours.protocol} here: install the same version of tacit"
        if theirs.federation != ours.federation:
            return f"federation {theirs.federation[:80]!r} there, {ours.federation!r} here"
        if theirs.parameters != ours.parameters or theirs.dtype != ours.dtype:
            return (
                f"a model of {theirs.parameters} numbers ({theirs.dtype[:20]}) there, "
                f"{ours.parameters} ({ours.dtype}) here"
            )
        if theirs.generation == ours.generation and theirs.manifest != ours.manifest:
            names = sorted(set(theirs.sections) | set(ours.sections))
            differ = [
                name for name in names if theirs.sections.get(name) != ours.sections.get(name)
            ]
            return f"another manifest for generation {ours.generation}, which differs in {', '.join(differ)[:200] or 'form'}"
        return None

    def notice(self) -> wire.Notice:
        """How far this node is, for a neighbour that waits."""
        now = self.now()
        return wire.Notice(
            generation=self.manifest.generation, tick=now.step, waiting_for=now.blamed
        )

    def status(self) -> wire.Status:
        """How it is going."""
        now, metrics = self.now(), self.metrics
        return wire.Status(
            name=self.name,
            generation=self.manifest.generation,
            phase=now.phase,
            waiting_for=now.waiting_for,
            step=now.step,
            steps=now.steps,
            round_length=now.round_length,
            loss=now.loss,
            accuracy=now.accuracy,
            bytes_sent=int(metrics.total("tacit_sent_bytes_total")),
            bytes_received=int(metrics.total("tacit_received_bytes_total")),
            rejected=int(metrics.total("tacit_rejected_total")),
            saved=now.saved,
            uptime_seconds=time.monotonic() - self._begun,
            problem=now.problem,
            version=tacit.__version__,
            manifest=self.manifest.hash,
        )

    def reject(self, reason: str, who: str, text: str) -> None:
        """Count and log what was refused."""
        self.metrics.count("tacit_rejected_total", reason=reason)
        self.event_log.write_throttled(
            5, ("rejected", who, reason), "rejected", "warning", sender=who, reason=reason, why=text
        )

    def told(self, signed: wire.SignedManifest, who: str) -> str | None:
        """Take in a manifest that somebody passed on; why not, if it is false."""
        try:
            self.consider(signed.manifest, signed.signature)
        except Misuse as problem:
            self.reject("manifest", who, str(problem))
            return str(problem)
        return None


def plain_status(status: wire.Status) -> dict[str, Any]:
    """A status as plain values."""
    told = {name.name: getattr(status, name.name) for name in status.DESCRIPTOR.fields}
    for optional in ("loss", "accuracy"):
        told[optional] = told[optional] if status.HasField(optional) else None
    return {**told, "waiting_for": list(status.waiting_for), "manifest": status.manifest.hex()}
