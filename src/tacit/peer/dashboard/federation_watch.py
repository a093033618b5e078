"""Watches a federation from an operator's or a node's folder, for its dashboard."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tacit.core.errors import Misuse
from tacit.peer.dashboard.board import Curve, Snapshot, board
from tacit.peer.dashboard.changes import changes, make_event
from tacit.peer.dashboard.node_view import settle, view_node
from tacit.peer.federation.certificates import OPERATOR, certificate_info
from tacit.peer.federation.federation_client import FederationClient
from tacit.peer.federation.folders import FederationFolder, NodeFolder
from tacit.peer.federation.manifest import Manifest

MAX_EVENTS = 200
TIMEOUT = 3.0  # seconds for nodes to respond


class FederationWatch:
    """Queries all nodes, and remembers what changed. `poll` is for one thread, `board` for any."""

    def __init__(self, folder: Path) -> None:
        self._folder: FederationFolder | NodeFolder
        if (folder / "node.key").exists():
            self._folder = NodeFolder(folder)
            self._viewer = self._folder.name
        else:
            self._folder, self._viewer = FederationFolder(folder), OPERATOR
        self._manifest = self._folder.manifest()
        self._client = self._connect(self._manifest)
        self._events: deque[dict[str, Any]] = deque(maxlen=MAX_EVENTS)
        self._snapshot: Snapshot | None = None
        self._curves: dict[str, Curve] = {}
        self._told: dict[str, tuple[Any, Any]] = {}  # the scores when curves were fetched
        self._lock = threading.Lock()

    def board(self) -> dict[str, Any]:
        """What the page shows, as of the last poll."""
        with self._lock:
            snapshot, events = self._snapshot, list(self._events)
        if snapshot is None:
            raise Misuse("Nothing has been queried yet.", "Call `poll` first.")
        return board(snapshot, events) | {"age": time.time() - snapshot.time}

    def poll(self) -> None:
        """Query all nodes once."""
        self._follow_roster()
        reports = [report.as_dict() for report in self._client.status(TIMEOUT)]
        self._fetch_curves({each["name"]: each for each in reports if each["reached"]})
        now, before, expiry = time.time(), self._snapshot, self._expiry()
        views = []
        for report in reports:
            name = report["name"]
            # A node knows best which certificate it uses.
            expires = report.get("certificate_expiry") or expiry.get(name)
            earlier = None if before is None else before.node(name)
            views.append(view_node(report | {"certificate_expiry": expires}, now, earlier))
        nodes = settle(views)
        shared = {name: expiry[name] for name in (OPERATOR, "authority") if name in expiry}
        curves = {name: self._curves[name] for name in self._manifest.names if name in self._curves}
        after = Snapshot(self._manifest, now, nodes, self._viewer, curves, shared)
        with self._lock:
            self._events.extend(changes(before, after))
            self._snapshot = after

    def note(self, level: str, text: str) -> None:
        """Add an event of the dashboard itself."""
        with self._lock:
            last = self._events[-1] if self._events else {}
            if last.get("text") != text:
                self._events.append(make_event(time.time(), "", level, text))

    def close(self) -> None:
        self._client.close()

    def _connect(self, manifest: Manifest) -> FederationClient:
        folder = self._folder
        if isinstance(folder, NodeFolder):
            own = folder.credentials()
        else:
            own = folder.operator_credentials()
        return FederationClient(manifest, own, folder.ca(), relay_log=folder.log())

    def _follow_roster(self) -> None:
        """Query the nodes of the newest roster in the folder."""
        try:
            newest = self._folder.manifest()
            if newest.text == self._manifest.text:
                return
            client = self._connect(newest)
        # The folder is being replaced, or a certificate has expired: go on with what there is.
        except Misuse:
            return
        self._client.close()
        self._manifest, self._client = newest, client

    def _fetch_curves(self, statuses: dict[str, dict[str, Any]]) -> None:
        """Fetch the curves again if a node tells new scores."""
        told = {name: (each["loss"], each["accuracy"]) for name, each in statuses.items()}
        told = {name: scores for name, scores in told.items() if scores != (None, None)}
        if told and told != self._told:
            self._curves |= self._client.scores(TIMEOUT)
            self._told = told

    def _expiry(self) -> dict[str, float]:
        """When the certificates that are in the folder expire, by name, in Unix time."""
        folder, path = self._folder, self._folder.path
        if isinstance(folder, NodeFolder):
            places = {folder.name: path / "node.pem", "operator": path / "operator.pem"}
            places["authority"] = path / "ca.pem"
        else:
            places = {name: folder.certificate_path(name) for name in self._manifest.names}
            places |= {"operator": folder.certificate_path(OPERATOR)}
            places["authority"] = path / "ca" / "ca.pem"
        found = {}
        for name, place in places.items():
            try:
                found[name] = certificate_info(place.read_bytes()).not_after.timestamp()
            # Not signed yet, or being replaced.
            except (OSError, Misuse):
                continue
        return found


@contextmanager
def watching(watch: FederationWatch, seconds: float) -> Iterator[None]:
    """Poll once now, then every so many seconds in a thread while the block runs."""
    watch.poll()
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(seconds):
            try:
                watch.poll()
            # The page must not freeze in silence: it shows this, and how old its data are.
            except Exception as problem:
                watch.note("error", f"the nodes cannot be queried: {problem!r}")

    thread = threading.Thread(target=repeat, name="watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        watch.close()
