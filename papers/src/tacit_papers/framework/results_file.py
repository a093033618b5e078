"""result.json: what is measured of an artifact, and by whom. Several processes may measure and write at once."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tacit
from tacit.core.errors import Misuse
from tacit.core.storage import file_lock, read_json, write_text
from tacit_papers.framework.artifact import Artifact, Key, Scale, Values
from tacit_papers.framework.outcome import ArtifactResult

LOCK = ".lock"  # the file that whoever writes in the folder of an artifact has locked


@dataclass
class ResultsFile:
    """All measurements of an artifact at one scale, here and in the file."""

    folder: Path
    outcome: ArtifactResult
    machines: list[str] = field(default_factory=list)

    @classmethod
    def empty(cls, folder: Path, artifact: Artifact, scale: Scale) -> ResultsFile:
        """Before the file is read."""
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder, ArtifactResult.empty(artifact, scale, artifact.cells(scale)))

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / "result.json"

    def refresh(self) -> list[Key]:
        """Take over numbers of cells that are measured now as they were then; the keys of the others."""
        if not self.path.exists():
            return []
        told = read_json(self.path)
        if told.get("quick") != self.outcome.scale.quick:
            size = "a quick version" if told.get("quick") else "full"
            raise Misuse(
                f"{self.path} is {size}, and the other was asked for.", "Choose another --out."
            )
        self.machines = told["machines"]
        then = {
            cell.key: cell for cell in ArtifactResult.from_dict(self.outcome.artifact, told).cells
        }
        dropped = []
        for cell in self.outcome.cells:
            if (earlier := then.get(cell.key)) is None:
                continue
            if earlier.measure == json.loads(json.dumps(cell.measure)):
                cell.values.update(earlier.values)
            elif earlier.values:
                dropped.append(cell.key)
        return dropped

    def add(self, key: Key, seed: int, values: Values, machine: str) -> None:
        """One more measurement; what others have written meanwhile is taken over."""
        with file_lock(self.folder / LOCK):
            self.refresh()
            if machine not in self.machines:
                self.machines.append(machine)
            self.outcome[key].values[seed] = values | {"machine": self.machines.index(machine)}
            write_text(self.path, as_text(self.as_dict()))

    def write(self) -> None:
        """Judge the claims anew."""
        with file_lock(self.folder / LOCK):
            self.refresh()
            write_text(self.path, as_text(self.as_dict()))

    def as_dict(self) -> dict[str, Any]:
        """Everything about an artifact as plain values."""
        artifact, scale = self.outcome.artifact, self.outcome.scale
        return {
            "artifact": artifact.name,
            "title": artifact.title,
            "protocol": artifact.protocol,
            "quick": scale.quick,
            "quickly": artifact.quickly if scale.quick else None,
            "metric": artifact.metric,
            "unit": artifact.unit,
            "version": tacit.__version__,
            "machines": self.machines,
            "claims": [
                {"claim": claim.text, "paper": claim.paper, **vars(claim.verdict(self.outcome))}
                for claim in artifact.claims
            ],
            "cells": self.outcome.cells_as_dicts(),
        }


def as_text(told: dict[str, Any]) -> str:
    """JSON that people can read: lists of numbers, of which curves and pictures have many, on one line each."""
    text = json.dumps(told, indent=1, ensure_ascii=False)
    return re.sub(r"\[[-+\d.eE,\snul]+\]", lambda found: " ".join(found[0].split()), text) + "\n"
