"""Keeping a node's state: when to save, what if the disk is full, and what neighbours may forget."""

from __future__ import annotations

import time
from pathlib import Path

from tacit.core.errors import Misuse
from tacit.peer.federation.manifest import Manifest
from tacit.peer.node.checkpoint_store import KEPT, CheckpointStore, Saved, order
from tacit.peer.node.disk import complain, persist
from tacit.peer.node.state import NodeState

ENOUGH = 1 << 26  # bytes that one neighbour keeps for us before we save, so that it may forget them

LOST = "Let the operator remove this node, and add it under another name."


class CheckpointPolicy:
    """Saves the states of one node below a folder."""

    def __init__(self, folder: Path, desk: NodeState, seconds: float) -> None:
        self._folder, self._desk, self._seconds = folder, desk, seconds
        self._saves = CheckpointStore(folder)
        self._steps: list[int] = []  # of the checkpoints of this generation that are kept
        self._last = time.monotonic()

    @property
    def acknowledged(self) -> int:
        """Up to where neighbours may forget: the older of the two checkpoints that are kept, −1 for nothing yet.

        Not the newer: if that one turns out to be damaged, the node asks again for everything since the older one.
        """
        return self._steps[-KEPT] if len(self._steps) >= KEPT else -1

    def due(self, received: int) -> bool:
        """Whether to save now, when neighbours keep so many bytes for us."""
        return received >= ENOUGH or time.monotonic() - self._last >= self._seconds

    def has(self, step: int) -> bool:
        """Whether a state of this generation and iteration is saved."""
        return step in self._steps

    def write(self, saved: Saved, insist: bool = True) -> None:
        """Save; without room on the disk wait for it, because going on would promise what is not kept."""
        if insist:
            persist(self._desk, "the state", lambda: self._saves.save(saved))
        else:
            try:
                self._saves.save(saved)
            except OSError as problem:
                complain(self._desk, "the state", problem)
                return
        self._steps = [] if saved.meeting else [*self._steps, saved.step][-KEPT:]
        self._last = time.monotonic()
        self._measure(saved.step)

    def load(self, manifest: Manifest, data: str) -> Saved | None:
        """The newest state that is whole, if there is any; what is damaged is put aside."""
        saved, problems = self._saves.load(manifest.federation)
        for problem in problems:
            self._desk.event_log.write("checkpoint passed over", "warning", why=problem)
        if saved is None and problems:
            raise Misuse(
                f"No checkpoint in {self._folder} can be used ({'; '.join(problems)}).", LOST
            )
        if saved is None:
            return None
        if saved.generation > manifest.generation:
            raise Misuse(
                f"{self._folder} holds a state of generation {saved.generation}, but the manifest is of generation {manifest.generation}.",
                "Put the newer federation.toml and federation.sig into the node's folder.",
            )
        damaged = self._saves.newer_than(saved)
        if saved.generation < manifest.generation and any(
            order(path)[0] == manifest.generation for path in damaged
        ):
            # What this node said when it went over is gone, and the others go by it.
            raise Misuse(
                f"The states of generation {manifest.generation} in {self._folder} are damaged.",
                LOST,
            )
        for path in damaged:
            path.rename(path.with_suffix(".damaged"))
        if saved.generation == manifest.generation:
            self._refuse_other_data(saved, data)
            self._steps = [] if saved.meeting else [saved.step]
        return saved

    def _refuse_other_data(self, saved: Saved, data: str) -> None:
        """Within a generation a node trains on the same data: what it says again must be what it said."""
        if saved.data != data:
            raise Misuse(
                f"The data are not those with which this node went through iteration {saved.step}.",
                f"Give it the same again. To go on with other data: {LOST[0].lower()}{LOST[1:]}",
            )

    def _measure(self, step: int) -> None:
        desk, outbox = self._desk, self._desk.standing.outbox
        desk.report(saved=step)
        desk.metrics.count("tacit_checkpoints_total")
        desk.metrics.set("tacit_checkpoint_step", step)
        desk.metrics.set("tacit_outbox_bytes", outbox.bytes)
        desk.metrics.set("tacit_outbox_letters", len(outbox.held()))
