"""What a node leaves behind: a line of history per evaluation, and at the end its model and a summary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tacit
from tacit.core.errors import Misuse
from tacit.core.storage import append_text, read_json, write_bytes, write_json, write_text
from tacit.peer.node.disk import persist
from tacit.peer.node.state import NodeState


class Results:
    """The files of one node below its `run` folder."""

    def __init__(self, folder: Path, desk: NodeState) -> None:
        self._folder, self._desk = folder, desk

    def go_back(self, generation: int, step: int) -> None:
        """Forget what was noted at or after an iteration: it is done again."""
        earlier = [
            old
            for old in read_history(self._history)
            if (old["generation"], old["step"]) < (generation, step)
        ]
        lines = "".join(json.dumps(old) + "\n" for old in earlier)
        write_text(self._history, lines, durable=True)

    @property
    def _history(self) -> Path:
        return self._folder / "history.jsonl"

    def record(self, step: int, loss: float, accuracy: float | None, seconds: float) -> None:
        """Note how good the model is."""
        desk, generation = self._desk, self._desk.manifest.generation
        desk.report(loss=loss, accuracy=accuracy)
        desk.metrics.set("tacit_loss", loss)
        if accuracy is not None:
            desk.metrics.set("tacit_accuracy_percent", accuracy)
        line = {
            "generation": generation,
            "round": step // desk.progress.round_length,
            "step": step,
            "loss": loss,
            "accuracy": accuracy,
            **self._traffic(),
            "wall_seconds": seconds,
        }
        persist(desk, "the history", lambda: append_text(self._history, json.dumps(line) + "\n"))
        desk.event_log.write("evaluated", "info", **line)

    def finish(self, theta: Any, algorithm: str, step: int, seconds: float) -> None:
        """Leave the model [P] and the summary."""
        from safetensors.torch import save

        desk = self._desk
        if self._has_finished():
            return  # a node that is started again after the end knows less of the run than what it left
        model = save({"theta": theta.detach().cpu().contiguous()})
        path = self._folder / "model.safetensors"
        persist(desk, "the model", lambda: write_bytes(path, model, durable=True))
        summary = {
            "node": desk.name,
            "federation": desk.manifest.federation,
            "generation": desk.manifest.generation,
            "algorithm": algorithm,
            "steps": step,
            "rounds": step // desk.progress.round_length,
            "parameters": desk.parameters,
            "loss": desk.progress.loss,
            "accuracy": desk.progress.accuracy,
            **self._traffic(),
            "rejected": int(desk.metrics.total("tacit_rejected_total")),
            "wall_seconds": seconds,
            "version": tacit.__version__,
        }
        persist(desk, "the summary", lambda: write_json(self._folder / "summary.json", summary))

    def _has_finished(self) -> bool:
        """Whether the summary of this generation's end is there."""
        try:
            told = read_json(self._folder / "summary.json")
        except Misuse:
            return False
        return (told.get("generation"), told.get("steps")) == (
            self._desk.manifest.generation,
            self._desk.progress.steps,
        )

    def _traffic(self) -> dict[str, int]:
        """Bytes of letters since this process began."""
        metrics = self._desk.metrics
        return {
            "bytes_sent": int(metrics.total("tacit_sent_bytes_total")),
            "bytes_received": int(metrics.total("tacit_received_bytes_total")),
        }


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
