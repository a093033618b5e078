"""Files that a node writes for its user: a history of evaluations, the final model, a summary."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors.torch import save

from tacit.core.errors import Misuse
from tacit.core.storage import append_text, read_json, write_bytes, write_json, write_text
from tacit.core.version import __version__
from tacit.peer.node.checkpoint_policy import write_with_retry
from tacit.peer.node.node_scores import NodeScores
from tacit.peer.node.node_state import NodeState


class Results:
    def __init__(self, folder: Path, state: NodeState) -> None:
        self._folder, self._state = folder, state
        self._history = folder / "history.jsonl"
        self._last: NodeScores | None = None

    def drop_from(self, generation: int, step: int) -> None:
        """Remove the records of an iteration and later ones, which will be repeated.

        A damaged history is renamed: training does not need it.
        """
        try:
            records = read_history(self._history)
        except (OSError, ValueError) as problem:
            records, aside = [], self._history.with_suffix(".damaged")
            os.replace(self._history, aside)
            why = f"{self._history} is damaged ({problem}); it is now {aside.name}"
            self._state.event_log.write("history set aside", "warning", why=why)
        before = (generation, step)
        kept = [record for record in records if (record["generation"], record["step"]) < before]
        lines = "".join(json.dumps(record) + "\n" for record in kept)
        write_text(self._history, lines, durable=True)
        for record in kept:
            self._state.scores.add(record["step"], record.get("loss"), record.get("accuracy"))

    def record(self, step: int, scores: NodeScores, seconds: float) -> None:
        """Add an evaluation to the history, and say if its accuracy misleads."""
        state, loss, accuracy = self._state, scores.loss, scores.accuracy
        self._last = scores
        state.report(loss=loss, accuracy=accuracy, baseline=scores.baseline)
        state.scores.add(step, loss, accuracy)
        state.metrics.set("tacit_loss", loss)
        if accuracy is not None:
            state.metrics.set("tacit_accuracy_percent", accuracy)
        if scores.baseline is not None:
            state.metrics.set("tacit_baseline_percent", scores.baseline)
        record = {
            "generation": state.manifest.generation,
            "round": step // state.progress.round_length,
            "step": step,
            "loss": loss,
            "accuracy": accuracy,
            **scores.further(),
            **state.traffic(),
            "wall_seconds": seconds,
        }
        line = json.dumps(record) + "\n"
        write_with_retry(state, "the history", lambda: append_text(self._history, line))
        state.event_log.write("evaluated", "info", **record)

    def write_final(
        self, theta: Any, algorithm: str, step: int, seconds: float, shared: str = ""
    ) -> None:
        """Write the model [P] and the summary; `shared` says what else members were told."""
        state = self._state
        # A node that is started again after the end would overwrite traffic and times.
        with suppress(Misuse):
            old = read_json(self._folder / "summary.json")
            end = (state.manifest.generation, state.progress.steps)
            if (old.get("generation"), old.get("steps")) == end:
                return
        model = save({"theta": theta.detach().cpu().contiguous()})
        path = self._folder / "model.safetensors"
        write_with_retry(state, "the model", lambda: write_bytes(path, model, durable=True))
        summary = {
            "node": state.name,
            "federation": state.manifest.federation,
            "generation": state.manifest.generation,
            "algorithm": algorithm,
            "steps": step,
            "rounds": step // state.progress.round_length,
            "parameters": state.parameters,
            "loss": state.progress.loss,
            "accuracy": state.progress.accuracy,
            **({} if self._last is None else self._last.summary()),
            **state.traffic(),
            "rejected": int(state.metrics.total("tacit_rejected_total")),
            "wall_seconds": seconds,
            "version": __version__,
        }
        if shared:
            summary["shared"] = shared
        if state.spent is not None:
            summary["privacy"] = state.spent.as_dict()
        for alert in () if self._last is None else self._last.alerts:
            state.event_log.write("accuracy misleads", "warning", why=alert)
        path = self._folder / "summary.json"
        write_with_retry(state, "the summary", lambda: write_json(path, summary))


def read_history(path: Path) -> list[dict[str, Any]]:
    """Read the records of a history; raise ValueError if it holds anything else.

    A crash may have truncated the last line, which is skipped.
    """
    if not path.exists():
        return []
    *lines, last = path.read_bytes().split(b"\n")
    records = [_parse_record(line, number) for number, line in enumerate(lines, start=1)]
    try:
        records += [_parse_record(last, len(lines) + 1)] if last else []
    except ValueError:
        if not last.startswith(b"{"):
            raise
    return records


def _parse_record(line: bytes, number: int) -> dict[str, Any]:
    """A record, with the whole numbers by which records are ordered."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict) or not all(
        isinstance(record.get(key), int) for key in ("generation", "step")
    ):
        raise ValueError(f"line {number} is not a record")
    return record
