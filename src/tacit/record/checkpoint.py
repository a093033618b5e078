"""Checkpoints: the state of a run as safetensors, written atomically."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tacit.algorithms.algorithm import Algorithm, tensors_of
from tacit.core.errors import Misuse
from tacit.record.checkpoint_files import UNREADABLE, CheckpointFiles

FORMAT = "tacit-checkpoint-1"
FILE = re.compile(r"step-(\d{9})\.safetensors")
# The name of local parameters in the file, which no field of a state has.
LOCAL = "local parameters"
# Before the names of late rows; no field of a state has it.
LATE = "late/"
FACTS = ("step", "bytes_sent", "wall_seconds", "fingerprint", "gradients", "diverged", "privacy")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state after `step` iterations, and what else a run needs to continue to the same bits.

    Attributes:
        fingerprint: Digest of the configuration that the state belongs to.
        diverged: Where the run first diverged, if it was allowed to.
        gradients: Backend of the gradients; another one would round differently.
        privacy: The privacy budget and what is spent of it, if the run has one.
        local: The local parameters [n, Q] of the clients, if there are any.
        late_rows: Rows that were sent and may still arrive, by name.
    """

    state: Any
    step: int
    bytes_sent: int
    wall_seconds: float
    fingerprint: str
    diverged: str | None = None
    gradients: str = "auto"
    privacy: dict[str, Any] | None = None
    local: Tensor | None = None
    late_rows: dict[str, Tensor] = field(default_factory=dict)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors of the file by name: the state, local parameters and late rows."""
        local = {} if self.local is None else {LOCAL: self.local}
        late = {LATE + name: rows for name, rows in self.late_rows.items()}
        return tensors_of(self.state) | local | late


def files_in(folder: Path) -> CheckpointFiles:
    """The checkpoints of a run in a folder."""
    return CheckpointFiles(folder, FORMAT, FILE, lambda name: int(name[1]))


def save(folder: Path, checkpoint: Checkpoint, keep: int = 2) -> Path:
    """Write a checkpoint atomically and remove all but the newest `keep`."""
    files, name = files_in(folder), name_of(checkpoint.step)
    path = files.write(name, checkpoint.tensors, facts_of(checkpoint))
    files.remove_old(keep, but=name)
    return path


def facts_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """What a file holds besides the tensors."""
    return {name: getattr(checkpoint, name) for name in FACTS}


def name_of(step: int) -> str:
    return f"step-{step:09d}.safetensors"


def load_latest(
    folder: Path, algorithm: Algorithm, fingerprint: str, device: torch.device | str = "cpu"
) -> Checkpoint | None:
    """The newest readable checkpoint in a folder, or None if the folder has none.

    Damaged files are skipped; if all are damaged, Misuse is raised. On the device "meta" the
    tensors have shapes only.
    """
    files = files_in(folder)
    checkpoint, problems = files.newest(lambda path: _load(files, path, algorithm, device))
    if checkpoint is None and problems:
        raise Misuse(
            f"No checkpoint in {folder} can be read ({'; '.join(problems)}).",
            "Start the run again.",
        )
    if checkpoint is not None and checkpoint.fingerprint != fingerprint:
        raise Misuse(
            f"{folder / name_of(checkpoint.step)} belongs to a run with another configuration.",
            "Resume with the configuration of that folder, or choose another output folder.",
        )
    return checkpoint


def saved_fingerprint(folder: Path) -> str | None:
    """The fingerprint in the newest checkpoint of a folder; None if it has no readable one."""
    files = files_in(folder)
    return files.newest(lambda path: str(files.facts(path)["fingerprint"]))[0]


def read_latest(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of the newest checkpoint by name, and its facts, of whichever algorithm.

    Raises:
        Misuse: If the folder has none, or it is damaged.
    """
    files = files_in(folder)
    if not (paths := files.newest_first()):
        raise Misuse(f"There is no checkpoint in {folder}.", "Run it again, to the end.")
    try:
        return files.read(paths[0])
    except UNREADABLE as problem:
        raise Misuse(f"{paths[0]} cannot be read: {problem}.", "Run it again.") from None


def _load(
    files: CheckpointFiles, path: Path, algorithm: Algorithm, device: torch.device | str
) -> Checkpoint:
    tensors, facts = files.read(path, device)
    local = tensors.pop(LOCAL, None)
    late = {name: tensors.pop(name) for name in list(tensors) if name.startswith(LATE)}
    late = {name.removeprefix(LATE): rows for name, rows in late.items()}
    state = algorithm.state_class(**tensors)
    required = {name: facts[name] for name in FACTS if name != "privacy"}
    return Checkpoint(state, **required, privacy=facts.get("privacy"), local=local, late_rows=late)
