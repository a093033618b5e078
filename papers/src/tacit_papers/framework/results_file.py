"""result.json: all measurements of an artifact. Several processes can add to one file at once."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tacit
from tacit.core.storage import file_lock, read_json, write_text
from tacit_papers.framework.artifact import Artifact
from tacit_papers.framework.cells import Key, Scale, Values
from tacit_papers.framework.claims import Claim, ClaimVerdict
from tacit_papers.framework.contradictions import find_contradiction
from tacit_papers.framework.results import ArtifactResult
from tacit_papers.framework.stored_values import thinned

LOCK = ".lock"  # held by a process while it writes in the folder


@dataclass
class ResultsFile:
    """The measurements of an artifact at one scale, in memory and on disk."""

    folder: Path
    artifact: Artifact
    result: ArtifactResult
    version: str = tacit.__version__  # of Tacit, which measured last
    machines: list[str] = field(default_factory=list)
    outdated: list[Key] = field(default_factory=list)  # cells that are measured in another way now

    @classmethod
    def read(cls, folder: Path, artifact: Artifact, scale: Scale) -> ResultsFile:
        """What a folder has of this scale; nothing if it has none or another one."""
        file = cls(folder, artifact, artifact.new_result(scale))
        file.refresh()
        return file

    @property
    def path(self) -> Path:
        return self.folder / "result.json"

    def refresh(self) -> None:
        """Read the numbers of cells whose measure is the same, which other processes may add."""
        stored = read_json(self.path) if self.path.exists() else None
        if stored is None or Scale(bool(stored.get("quick"))) != self.result.scale:
            return
        self.version, self.machines, self.outdated = stored["version"], stored["machines"], []
        cells = {
            tuple(cell["key"][axis] for axis in self.artifact.axes): cell
            for cell in stored["cells"]
        }
        for cell in self.result.cells:
            if (earlier := cells.get(cell.key)) is None:
                continue
            if earlier["measure"] == json.loads(json.dumps(cell.measure)):
                cell.values.update({one["seed"]: one["values"] for one in earlier["repeats"]})
            elif earlier["repeats"]:
                self.outdated.append(cell.key)

    def add(self, key: Key, seed: int, values: Values, machine: str) -> None:
        """Add a measurement, and keep those that other processes wrote in between."""
        with file_lock(self.folder / LOCK):
            self.refresh()
            self.version = tacit.__version__
            if machine not in self.machines:
                self.machines.append(machine)
            self.result[key].values[seed] = thinned(values) | {
                "machine": self.machines.index(machine)
            }
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
            "version": self.version,
            "machines": self.machines,
            "claims": [
                {
                    "claim": claim.text,
                    "paper": claim.paper,
                    "word": verdict.grade,
                    "ours": verdict.ours,
                    "why": verdict.reason,
                    **_explanation(artifact, claim, verdict),
                }
                for claim, verdict in verdicts
            ],
            "cells": self.result.cells_as_dicts(),
        }


def _explanation(artifact: Artifact, claim: Claim, verdict: ClaimVerdict) -> dict[str, str | None]:
    """Why a claim is not reproduced; None for other verdicts, and if no explanation is given."""
    found = find_contradiction(claim.text, artifact.contradictions)
    if found is None or verdict.grade != "not reproduced":
        return {"cause": None, "argument": None}
    return {"cause": found.cause.value, "argument": found.argument}


def stored_scale(folder: Path) -> Scale | None:
    """The size of the results in a folder; None if there are none."""
    path = folder / "result.json"
    return Scale(bool(read_json(path).get("quick"))) if path.exists() else None


def as_text(content: dict[str, Any]) -> str:
    """Readable JSON: lists of numbers, such as curves and pictures, take one line each."""
    text = json.dumps(content, indent=1, ensure_ascii=False)
    return re.sub(r"\[[-+\d.eE,\snul]+\]", lambda found: " ".join(found[0].split()), text) + "\n"
