"""result.json: all measurements of an artifact. Several processes can add to one file at once."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tacit
from tacit.core.errors import Misuse
from tacit.core.storage import file_lock, read_json, write_text
from tacit_papers.framework.artifact import Artifact
from tacit_papers.framework.cells import Key, Scale, Values
from tacit_papers.framework.results import ArtifactResult

LOCK = ".lock"  # held by a process while it writes in the folder


@dataclass
class ResultsFile:
    """The measurements of an artifact at one scale, in memory and on disk."""

    folder: Path
    artifact: Artifact
    result: ArtifactResult
    machines: list[str] = field(default_factory=list)

    @classmethod
    def empty(cls, folder: Path, artifact: Artifact, scale: Scale) -> ResultsFile:
        """Before the file is read."""
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder, artifact, artifact.new_result(scale))

    @property
    def path(self) -> Path:
        return self.folder / "result.json"

    def refresh(self) -> list[Key]:
        """Read the numbers of cells whose measure is the same; return the keys of the others."""
        if not self.path.exists():
            return []
        stored = read_json(self.path)
        if stored.get("quick") != self.result.scale.quick:
            size = "a quick version" if stored.get("quick") else "full"
            raise Misuse(
                f"{self.path} is {size}, but the other version is requested.",
                "Choose another --out.",
            )
        self.machines = stored["machines"]
        cells = {
            tuple(cell["key"][axis] for axis in self.artifact.axes): cell
            for cell in stored["cells"]
        }
        outdated = []
        for cell in self.result.cells:
            if (earlier := cells.get(cell.key)) is None:
                continue
            if earlier["measure"] == json.loads(json.dumps(cell.measure)):
                cell.values.update({one["seed"]: one["values"] for one in earlier["repeats"]})
            elif earlier["repeats"]:
                outdated.append(cell.key)
        return outdated

    def add(self, key: Key, seed: int, values: Values, machine: str) -> None:
        """Add a measurement, and keep those that other processes wrote in between."""
        with file_lock(self.folder / LOCK):
            self.refresh()
            if machine not in self.machines:
                self.machines.append(machine)
            self.result[key].values[seed] = values | {"machine": self.machines.index(machine)}
            write_text(self.path, as_text(self.as_dict()))

    def write(self) -> None:
        """Judge the claims again and write the file."""
        with file_lock(self.folder / LOCK):
            self.refresh()
            write_text(self.path, as_text(self.as_dict()))

    def as_dict(self) -> dict[str, Any]:
        artifact, quick = self.artifact, self.result.scale.quick
        verdicts = [(claim, claim.judge(self.result)) for claim in artifact.claims]
        return {
            "artifact": artifact.name,
            "title": artifact.title,
            "protocol": artifact.protocol,
            "quick": quick,
            "quickly": artifact.quickly if quick else None,
            "metric": artifact.metric,
            "unit": artifact.unit,
            "version": tacit.__version__,
            "machines": self.machines,
            "claims": [
                {
                    "claim": claim.text,
                    "paper": claim.paper,
                    "word": verdict.grade,
                    "ours": verdict.ours,
                    "why": verdict.reason,
                }
                for claim, verdict in verdicts
            ],
            "cells": self.result.cells_as_dicts(),
        }


def as_text(content: dict[str, Any]) -> str:
    """Readable JSON: lists of numbers, such as curves and pictures, take one line each."""
    text = json.dumps(content, indent=1, ensure_ascii=False)
    return re.sub(r"\[[-+\d.eE,\snul]+\]", lambda found: " ".join(found[0].split()), text) + "\n"
