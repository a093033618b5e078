"""What a node leaves behind: a line of history per evaluation, and at the end its model and a summary."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import tacit
from tacit.core.errors import Misuse
from tacit.experiment.folder import read_json, write_json
from tacit.peer.federation.private_files import replace
from tacit.peer.node.disk import persist
from tacit.peer.node.state import NodeState


class Results:
    """The files of one node below its `run` folder."""

    def __init__(self, folder: Path, desk: NodeState) -> None:
        self._folder, self._desk = folder, desk

    def go_back(self, epoch: int, step: int) -> None:
        """Forget what was noted at or after an iteration: it is done again."""
        earlier = [
            old
            for old in read_history(self._history)
            if (old["epoch"], old["step"]) < (epoch, step)
        ]
        replace(self._history, "".join(json.dumps(old) + "\n" for old in earlier).encode())

    @property
    def _history(self) -> Path:
        return self._folder / "history.jsonl"

    def record(self, step: int, loss: float, accuracy: float | None, seconds: float) -> None:
        """Note how good the model is."""
        desk, epoch = self._desk, self._desk.manifest.epoch
        desk.report(loss=loss, accuracy=accuracy)
        desk.measures.set("tacit_loss", loss)
        if accuracy is not None:
            desk.measures.set("tacit_accuracy_percent", accuracy)
        line = {
            "epoch": epoch,
            "round": step // desk.progress.round_length,
            "step": step,
            "loss": loss,
            "accuracy": accuracy,
            **self._traffic(),
            "wall_seconds": seconds,
        }
        persist(desk, "the history", lambda: _append(self._history, json.dumps(line) + "\n"))
        desk.journal.say("evaluated", "info", **line)

    def finish(self, theta: Any, algorithm: str, step: int, seconds: float) -> None:
        """Leave the model [P] and the summary."""
        from safetensors.torch import save

        desk = self._desk
        if self._has_finished():
            return  # a node that is started again after the end knows less of the run than what it left
        model = save({"theta": theta.detach().cpu().contiguous()})
        persist(desk, "the model", lambda: replace(self._folder / "model.safetensors", model))
        summary = {
            "node": desk.name,
            "federation": desk.manifest.federation,
            "epoch": desk.manifest.epoch,
            "algorithm": algorithm,
            "steps": step,
            "rounds": step // desk.progress.round_length,
            "parameters": desk.parameters,
            "loss": desk.progress.loss,
            "accuracy": desk.progress.accuracy,
            **self._traffic(),
            "rejected": int(desk.measures.total("tacit_rejected_total")),
            "wall_seconds": seconds,
            "version": tacit.__version__,
        }
        persist(desk, "the summary", lambda: write_json(self._folder / "summary.json", summary))

    def _has_finished(self) -> bool:
        """Whether the summary of this epoch's end is there."""
        try:
            told = read_json(self._folder / "summary.json")
        except Misuse:
            return False
        return (told.get("epoch"), told.get("steps")) == (
            self._desk.manifest.epoch,
            self._desk.progress.steps,
        )

    def _traffic(self) -> dict[str, int]:
        """Bytes of letters since this process began."""
        measures = self._desk.measures
        return {
            "bytes_sent": int(measures.total("tacit_sent_bytes_total")),
            "bytes_received": int(measures.total("tacit_received_bytes_total")),
        }


def _append(path: Path, line: str) -> None:
    """Add a line to a file, or nothing of it."""
    raw = line.encode()
    with path.open("ab", buffering=0) as file:
        before = file.tell()
        try:
            if file.write(raw) != len(raw):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            file.truncate(before)
            raise


def read_history(path: Path) -> list[dict[str, Any]]:
    """The lines of a history; one that is cut off is left out."""
    if not path.exists():
        return []
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except ValueError:
            continue
    return lines
