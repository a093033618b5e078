"""State that the threads of a node share: its roster, its progress, and requests to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from tacit.core.errors import Misuse
from tacit.core.version import __version__
from tacit.peer.federation.absence import roster_order
from tacit.peer.federation.equivocation import Proof
from tacit.peer.federation.folders import NodeFolder, check_named
from tacit.peer.federation.manifest import Manifest, parse_manifest
from tacit.peer.federation.roster import OUTGOING, Member
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.monitoring.metrics import Metrics
from tacit.peer.node.digest_witness import DigestWitness
from tacit.peer.node.finished_peers import FinishedPeers
from tacit.peer.node.followed_log import FollowedLog
from tacit.peer.node.iteration_clock import IterationClock
from tacit.peer.node.live_credentials import LiveCredentials, expiry_notice
from tacit.peer.node.outbox import Outbox
from tacit.peer.node.score_history import ScoreHistory
from tacit.peer.node.spent_budget import SpentBudget
from tacit.peer.node.transcript_log import TranscriptLog
from tacit.peer.relay.client import RelayUser
from tacit.peer.relay.dialer import RelayDialer
from tacit.peer.relay.loop_thread import log_errors
from tacit.peer.wire import wire_pb2 as wire
from tacit.tasks.constants import constants_agree

PROTOCOL = 4
SILENCE_SECONDS = 1.0  # without a notice from a neighbour, after which a node reports that it waits


class Stopped(Exception):
    """The node must stop, or switch to a newer roster, while it waits for something."""


@dataclass(frozen=True, eq=False)
class ActiveRoster:
    """The roster that a node uses now, and what it keeps for its neighbours in that generation."""

    manifest: Manifest
    outbox: Outbox
    finished_peers: FinishedPeers

    @classmethod
    def load(cls, folder: NodeFolder, name: str, manifest: Manifest) -> ActiveRoster:
        """An empty outbox, and the finished neighbours from the node's folder."""
        readers = [member.name for member in manifest.out_neighbours(name)]
        finished = FinishedPeers(folder.run / "finished.json", manifest.number)
        return cls(manifest, Outbox(readers), finished)


@dataclass(frozen=True)
class NodeProgress:
    phase: str = "starting"
    step: int = 0
    steps: int = 0
    round_length: int = 1
    saved: int = -1
    loss: float | None = None
    accuracy: float | None = None
    baseline: float | None = None  # accuracy of always predicting the most frequent class
    waiting_for: tuple[str, ...] = ()  # neighbours, each with its own report in brackets
    problem: str = ""


@dataclass(frozen=True, eq=False)
class AnnouncedManifest:
    """A signed manifest with a newer generation than the active one."""

    manifest: Manifest
    signature: bytes


class AgreementView(Protocol):
    """What the threads of a node see of its part in agreements of the members."""

    @property
    def problem(self) -> str:
        """Why the members cannot go on without a silent one; empty if nothing prevents it."""

    def answer(self, caller: str, content: bytes) -> bytes:
        """Use a sheet from a member, and return this node's."""

    def unfinished(self) -> set[str]:
        """Members that may still need this node, although it has finished."""


@dataclass(eq=False)
class NodeState:
    """Shared by the threads that train, serve and fetch."""

    folder: NodeFolder
    name: str
    active: ActiveRoster
    event_log: EventLog
    parameters: int
    dtype: str
    # Whether the owner lets members query loss and accuracy, which are computed from its data.
    owner_shares_scores: bool = False
    # Sketch of the frozen weights and buffers of its model.
    constants: tuple[float, ...] = ()
    metrics: Metrics = field(default_factory=Metrics)
    progress: NodeProgress = NodeProgress()
    scores: ScoreHistory = field(default_factory=ScoreHistory)
    clock: IterationClock = field(default_factory=IterationClock)
    spent: SpentBudget | None = None
    transcript: TranscriptLog | None = None  # None: not kept
    # Neighbours whose messages the training thread waits for, and since when (set before them).
    awaited: tuple[str, ...] = ()
    waiting_since: float = 0.0
    stop: threading.Event = field(default_factory=threading.Event)
    announced: AnnouncedManifest | None = None  # verified, but not active yet
    agreement: AgreementView | None = None  # None while the members wait for ever
    suspended_by: Manifest | None = None  # the roster without this node, if there is one
    _cancel: Callable[[], None] = lambda: None  # ends what the training thread waits for
    _started: float = field(default_factory=time.monotonic)
    witness: DigestWitness = field(init=False)
    # Reentrant: a signal handler may request a stop while its own thread holds the lock.
    _lock: Any = field(default_factory=threading.RLock)
    credentials: LiveCredentials = field(init=False)
    changes: FollowedLog = field(init=False)
    relay_user: RelayUser = field(init=False)
    dialer: RelayDialer = field(init=False)

    def __post_init__(self) -> None:
        self.credentials = LiveCredentials(self.folder, self.name, self.event_log)
        self.changes = FollowedLog(self.folder, self.event_log)
        self.relay_user = RelayUser(
            self.manifest.federation,
            self.folder.ca(),
            self.credentials.current,
            lambda: self.changes.log,
        )
        self.dialer = RelayDialer(self.relay_user, log_errors(self.event_log))
        self.witness = DigestWitness(
            self.folder.run / "evidence", self.folder.ca, self._report_equivocation
        )

    @property
    def manifest(self) -> Manifest:
        return self.active.manifest

    def reach(self, member: Member) -> str:
        """The address to connect to, which leads to a relay if the member is behind a firewall."""
        address = self.changes.address(member, self.manifest)
        return self.dialer.address(member.name) if address == OUTGOING else address

    @property
    def is_outgoing(self) -> bool:
        """Whether others reach this node through relays only."""
        names = self.manifest.names
        member = self.manifest.member(self.name) if self.name in names else None
        return member is not None and self.changes.address(member, self.manifest) == OUTGOING

    @property
    def shares_scores(self) -> bool:
        """Whether others may have loss and accuracy: the manifest and the owner must both agree."""
        return self.owner_shares_scores and self.manifest.config.shares_metrics

    def _report_equivocation(self, proof: Proof, path: Path) -> None:
        self.metrics.count("tacit_equivocations_total", member=proof.name)
        remedy = f"Remove it: tacit federation remove FOLDER {proof.name}. Keep {path}."
        self.event_log.write(
            "equivocation", "error", member=proof.name, why=proof.statement, remedy=remedy
        )

    @property
    def problem(self) -> str:
        """Why this node cannot continue, and which members have lied."""
        found = [self.progress.problem]
        if self.agreement is not None:
            found.append(self.agreement.problem)
        names = self.manifest.names
        found += [why for name, why in self.witness.refused.items() if name in names]
        return "; ".join(filter(None, found))

    def report(self, **changes: object) -> None:
        with self._lock:
            self.progress = replace(self.progress, **changes)  # type: ignore[arg-type]

    def show_spent(self, spent: SpentBudget) -> None:
        """Show what is spent of a promised guarantee in the status and the metrics."""
        self.spent = spent
        spent.show_in(self.metrics)

    def current_progress(self) -> NodeProgress:
        """The progress. A neighbour that hangs sends no notice, so its silence is added here."""
        progress, awaited = self.progress, self.awaited
        if not awaited or time.monotonic() - self.waiting_since < SILENCE_SECONDS:
            return progress
        reports = {text.split(" ")[0]: text for text in progress.waiting_for}
        waiting_for = tuple(reports.get(name, name) for name in awaited)
        return replace(progress, phase="waiting", waiting_for=waiting_for)

    def consider_manifest(self, text: bytes, signature: bytes, log: bytes = b"") -> bool:
        """Switch to a manifest if it is newer; return whether it is. Raises Misuse if invalid.

        `log` is the operator's, which takes effect first.
        """
        if log:
            self.changes.update(log)
        announced = self.announced
        if text in (self.manifest.text, announced and announced.manifest.text):
            return False
        try:
            found = AnnouncedManifest(self.folder.check_update(text, signature), signature)
            check_named(self.changes.log, found.manifest)
        except Misuse:
            # The operator may have put a newer manifest into the folder, which counts instead.
            # Parse it only if it is not the active one: invalid manifests must stay cheap.
            text, signature = self.folder.signed_manifest()
            if text == self.manifest.text:
                raise
            found = AnnouncedManifest(parse_manifest(text), signature)
            if found.manifest.generation <= self.manifest.generation:
                raise
        generation = found.manifest.generation
        with self._lock:
            # Verifying took time: the node may have switched to this manifest already.
            pending = self.announced.manifest.generation if self.announced else 0
            if generation <= max(self.manifest.generation, pending):
                return False
            self.announced = found
            self._cancel()
        names = found.manifest.names
        self.event_log.write("new roster received", generation=generation, members=names)
        return True

    def receive_manifest(self, signed: wire.SignedManifest, sender: str) -> str | None:
        """Consider a manifest from a peer; if it is invalid, log that and return why."""
        try:
            self.consider_manifest(signed.manifest, signed.signature, signed.log)
        except Misuse as problem:
            self.reject("manifest", sender, str(problem))
            return str(problem)
        return None

    def signed_update(self) -> wire.SignedManifest:
        """The newest manifest that this node knows, and the operator's log."""
        newer = self.announced
        # What the members have agreed on among themselves has no signature of the operator.
        if newer is not None and newer.signature:
            text, signature = newer.manifest.text, newer.signature
        else:
            text, signature = self.folder.signed_manifest()
        log = self.changes.log.text
        return wire.SignedManifest(manifest=text, signature=signature, log=log)

    @property
    def is_revoked(self) -> bool:
        """Whether the operator revoked the certificate that this node uses."""
        return not self.changes.log.accepts(self.name, self.credentials.fingerprint)

    def certificate_notice(self, expiry: float, now: float) -> str:
        """What is wrong with this node's certificate, or will be soon; "" if nothing is."""
        if self.is_revoked:
            entry = self.changes.log.revoked_in(self.name)
            return f"the certificate of {self.name} is revoked by entry {entry} of the log"
        return expiry_notice(self.name, expiry, now)

    def follow_agreement(self, manifest: Manifest) -> None:
        """Switch to a roster that the members have decided, if it is newer."""
        order = roster_order(manifest.number)
        with self._lock:
            known = [self.manifest, self.suspended_by, self.announced and self.announced.manifest]
            if any(one and order <= roster_order(one.number) for one in known):
                return
            self.announced = AnnouncedManifest(manifest, b"")
            self._cancel()
        names = [name for name, _ in manifest.suspended]
        self.event_log.write("members agreed", epoch=manifest.epoch, suspended=names)

    def take_announced(self) -> AnnouncedManifest:
        """The newer roster, which is no longer pending."""
        with self._lock:
            announced, self.announced = self.announced, None
        assert announced is not None
        return announced

    def activate(self, roster: ActiveRoster) -> None:
        order = roster_order(roster.manifest.number)
        with self._lock:
            self.active, self.suspended_by = roster, None
            pending = self.announced
            if pending and roster_order(pending.manifest.number) <= order:
                self.announced = None

    def on_interrupt(self, cancel: Callable[[], None]) -> None:
        """Set what ends the waiting of the training thread; call it if already interrupted."""
        with self._lock:
            self._cancel = cancel
            if self.interrupted:
                cancel()

    def request_stop(self) -> None:
        with self._lock:
            self.stop.set()
            self._cancel()

    @property
    def interrupted(self) -> bool:
        """Whether to stop, or to switch to a newer roster."""
        return self.stop.is_set() or self.announced is not None

    def check_interrupted(self) -> None:
        """Raise Stopped if the node must stop or switch to a newer roster."""
        if self.interrupted:
            raise Stopped

    def reject(self, reason: str, sender: str, text: str) -> None:
        self.metrics.count("tacit_rejected_total", reason=reason)
        fields = {"sender": sender, "reason": reason, "why": text}
        key = ("rejected", sender, reason)
        self.event_log.write_throttled(5, key, "rejected", "warning", **fields)

    def node_info(self) -> wire.NodeInfo:
        manifest = self.manifest
        return wire.NodeInfo(
            protocol=PROTOCOL,
            federation=manifest.federation,
            generation=manifest.generation,
            manifest_sha256=manifest.hash,
            sections=manifest.sections,
            parameters=self.parameters,
            dtype=self.dtype,
            constants=self.constants,
            version=__version__,
            log_entries=self.changes.log.number,
            log_head=bytes.fromhex(self.changes.log.head),
            epoch=manifest.epoch,
        )

    def find_mismatch(self, theirs: wire.NodeInfo) -> str | None:
        """Say why this node and another cannot train together; None if they can.

        A different generation is no mismatch: the node with the older manifest gets the newer one.
        """
        ours = self.node_info()
        if theirs.protocol != ours.protocol:
            differ = f"protocol {theirs.protocol} there, {ours.protocol} here"
            return f"{differ}: install the same version of tacit"
        if theirs.federation != ours.federation:
            return f"federation {theirs.federation[:80]!r} there, {ours.federation!r} here"
        if theirs.parameters != ours.parameters or theirs.dtype != ours.dtype:
            there = f"a model of {theirs.parameters} numbers ({theirs.dtype[:20]}) there"
            return f"{there}, {ours.parameters} ({ours.dtype}) here"
        if not constants_agree(theirs.constants, ours.constants):
            differ = "the model has other frozen weights or buffers there than here"
            return f"{differ}: load the same ones at all nodes"
        same = (theirs.generation, theirs.epoch) == (ours.generation, ours.epoch)
        if same and theirs.manifest_sha256 != ours.manifest_sha256:
            names = sorted({*theirs.sections, *ours.sections})
            changed = [one for one in names if theirs.sections.get(one) != ours.sections.get(one)]
            parts = ", ".join(changed)[:200] or "form"
            return f"another manifest for generation {ours.generation}, which differs in {parts}"
        return None

    def progress_notice(self) -> wire.ProgressNotice:
        """What neighbours that wait are told. What others claim is not passed on."""
        now, generation = self.current_progress(), self.manifest.number
        names = [text.split(" ")[0] for text in now.waiting_for]
        return wire.ProgressNotice(generation=generation, tick=now.step, waiting_for=names)

    def traffic(self) -> dict[str, Any]:
        """Bytes of messages since this process started."""
        return {
            "bytes_sent": int(self.metrics.total("tacit_sent_bytes_total")),
            "bytes_received": int(self.metrics.total("tacit_received_bytes_total")),
        }

    def status(self, *, scores: bool = True) -> wire.Status:
        progress = asdict(self.current_progress()) | {"problem": self.problem}
        expiry = self.credentials.expiry
        roster = self.suspended_by or self.manifest
        if not scores:
            del progress["loss"], progress["accuracy"], progress["baseline"]
        return wire.Status(
            name=self.name,
            generation=self.manifest.generation,
            **progress,
            **self.traffic(),
            rejected=int(self.metrics.total("tacit_rejected_total")),
            uptime_seconds=time.monotonic() - self._started,
            version=__version__,
            manifest=self.manifest.hash,
            epoch=roster.epoch,
            suspended=[wire.Suspension(name=name, since=at) for name, at in roster.suspended],
            privacy=None if self.spent is None else wire.SpentBudget(**self.spent.as_dict()),
            certificate_expiry=expiry,
            certificate_notice=self.certificate_notice(expiry, time.time()),
        )
