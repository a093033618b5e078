"""When a node saves, how it waits while the disk is full, and what neighbours may drop after it."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tacit.core.errors import Misuse
from tacit.peer.federation.absence import roster_name, roster_order
from tacit.peer.federation.manifest import Manifest
from tacit.peer.node.checkpoint_store import (
    KEPT,
    CheckpointStore,
    NodeCheckpoint,
    roster_and_step,
)
from tacit.peer.node.node_state import NodeState, Stopped

# Bytes that one neighbour keeps for this node. At this size the node saves, to let it drop them.
MAX_UNSAVED_BYTES = 1 << 26
# Messages of large models have this size after fewer iterations. To write the state, 3·P numbers
# with LPPA, so often would take more than the messages, so a large model waits for this many
# iterations or for this many intervals.
LARGE_MODEL_STEPS = 10
LARGE_MODEL_INTERVALS = 10
MAX_PAUSE = 30.0  # seconds between two attempts to write
REPLACE_NODE = "Ask the operator to remove this node and to add it under another name."


class CheckpointPolicy:
    """Saves the checkpoints of one node in a folder, at least every `seconds` seconds."""

    def __init__(self, folder: Path, state: NodeState, seconds: float) -> None:
        self._folder, self._state, self._seconds = folder, state, seconds
        self._store = CheckpointStore(folder)
        self._steps: list[int] = []  # of the kept checkpoints of this generation
        self._last_save, self._last_step = time.monotonic(), 0

    @property
    def acknowledged(self) -> int:
        """The step up to which neighbours may drop messages, −1 for none.

        That of the older checkpoint: if the newer one is damaged, the node continues from the older
        one and fetches all messages since then again.
        """
        return self._steps[-KEPT] if len(self._steps) >= KEPT else -1

    def is_due(self, step: int, unsaved_bytes: int) -> bool:
        """Whether to save after an iteration, if each neighbour keeps so many bytes for this node.

        `tacit.peer.node.outbox` keeps the messages of two such intervals.
        """
        elapsed = time.monotonic() - self._last_save
        if unsaved_bytes < MAX_UNSAVED_BYTES:
            return elapsed >= self._seconds
        is_late = elapsed >= LARGE_MODEL_INTERVALS * self._seconds
        return is_late or step - self._last_step >= LARGE_MODEL_STEPS

    def has_saved(self, step: int) -> bool:
        """Whether this generation has a checkpoint of an iteration."""
        return step in self._steps

    def kept_steps(self, roster: int) -> list[int]:
        """The iterations of the checkpoints on disk under the roster with this number."""
        kept = [roster_and_step(path) for path in self._store.newest_first()]
        return [step for found, step in kept if found == roster_order(roster) and step >= 0]

    def save(self, checkpoint: NodeCheckpoint, *, retry: bool = True) -> None:
        """Save a checkpoint; with `retry`, wait as long as the disk is full.

        The node must not continue without: neighbours would drop messages that it still needs.
        """
        if retry:
            write_with_retry(self._state, "the state", lambda: self._store.save(checkpoint))
        else:
            try:
                self._store.save(checkpoint)
            except OSError as problem:
                _report_failure(self._state, "the state", problem)
                return
        self._steps = [] if checkpoint.rejoin else [*self._steps, checkpoint.step][-KEPT:]
        self._last_save, self._last_step = time.monotonic(), checkpoint.step
        metrics, outbox = self._state.metrics, self._state.active.outbox
        # Without it they stay in memory.
        with suppress(OSError):
            for message in self._store.mapped_messages(checkpoint):
                outbox.replace(message)
        self._state.report(saved=checkpoint.step)
        metrics.count("tacit_checkpoints_total")
        metrics.set("tacit_checkpoint_step", checkpoint.step)
        metrics.set("tacit_outbox_bytes", outbox.size)
        metrics.set("tacit_outbox_messages", len(outbox.messages()))

    def load(self, manifest: Manifest, data_digest: str) -> NodeCheckpoint | None:
        """Load the newest undamaged checkpoint, if there is one; rename damaged ones.

        Raises Misuse if the node cannot continue from it.
        """
        checkpoint, problems = self._store.load(manifest.federation)
        for problem in problems:
            self._state.event_log.write("checkpoint skipped", "warning", why=problem)
        if checkpoint is None:
            if problems:
                text = f"No checkpoint in {self._folder} can be used ({'; '.join(problems)})."
                raise Misuse(text, REPLACE_NODE)
            return None
        ours, saved = roster_order(manifest.number), roster_order(checkpoint.generation)
        if saved > ours:
            raise Misuse(
                f"{self._folder} has a checkpoint of {roster_name(checkpoint.generation)}, but "
                f"the manifest is of {roster_name(manifest.number)}.",
                "Put the newer federation.toml and federation.sig into the node's folder.",
            )
        damaged = self._store.newer_than(checkpoint)
        rosters = [roster_and_step(path)[0] for path in damaged]
        # Neighbours rely on what this node sent after it switched to the generation.
        if saved < ours and ours in rosters:
            damage = f"The checkpoints of {roster_name(manifest.number)} in {self._folder}"
            raise Misuse(f"{damage} are damaged.", REPLACE_NODE)
        for path in damaged:
            path.rename(path.with_suffix(".damaged"))
        if saved == ours:
            # A repeated message must equal the first one, so the data must be the same.
            if checkpoint.data_digest != data_digest:
                raise Misuse(
                    "The data are not those that this node used up to iteration "
                    f"{checkpoint.step}.",
                    "Start it with the same data. To continue with other data: "
                    f"{REPLACE_NODE[0].lower()}{REPLACE_NODE[1:]}",
                )
            self._steps = [] if checkpoint.rejoin else [checkpoint.step]
        self._last_step = checkpoint.step
        return checkpoint


def write_with_retry(state: NodeState, what: str, write: Callable[[], object]) -> None:
    """Call `write` until it succeeds; raise Stopped if the node must stop before that."""
    phase, failures = state.progress.phase, 0
    while True:
        try:
            write()
            break
        except OSError as problem:
            _report_failure(state, what, problem)
            if state.stop.wait(min(MAX_PAUSE, 0.5 * 2**failures)):
                raise Stopped from None
            failures += 1
    if failures:
        state.report(phase=phase, problem="")
        state.event_log.write("saved after retry", what=what, step=state.progress.step)


def _report_failure(state: NodeState, what: str, problem: OSError) -> None:
    """Log a failed write, and show it in the node's status."""
    why = f"{what} cannot be saved: {problem.strerror or problem}"
    state.metrics.count("tacit_checkpoint_failures_total")
    state.report(phase="saving", problem=why)
    remedy = "Free disk space, or correct the permissions of the run folder."
    if problem.errno in (errno.EMFILE, errno.ENFILE):
        remedy = "The process has no file left to open, whatever the disk: raise ulimit -n."
    state.event_log.write("save failed", "error", why=why, remedy=remedy)
