"""Checkpoints: the state of a run as safetensors, written atomically."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tacit.algorithms.algorithm import Algorithm, tensors_of
from tacit.core import storage
from tacit.core.errors import Misuse

FORMAT = "tacit-checkpoint-1"
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
        own = {} if self.local is None else {LOCAL: self.local}
        late = {LATE + name: rows for name, rows in self.late_rows.items()}
        return tensors_of(self.state) | own | late


def save(folder: Path, checkpoint: Checkpoint, keep: int = 2) -> Path:
    """Write a checkpoint atomically and remove all but the newest `keep`."""
    from safetensors.torch import save_file

    # Fields may be views or share memory (DSGT's first tracker is its gradient), which safetensors
    # does not allow.
    tensors = {
        name: rows.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, rows in checkpoint.tensors.items()
    }
    with writing(folder, checkpoint.step, keep) as part:
        save_file(tensors, part, metadata=metadata(checkpoint))
    return path_of(folder, checkpoint.step)


def metadata(checkpoint: Checkpoint) -> dict[str, str]:
    """What a file holds besides the tensors."""
    facts = {name: getattr(checkpoint, name) for name in FACTS}
    return {"tacit": json.dumps({"format": FORMAT} | facts)}


@contextmanager
def writing(folder: Path, step: int, keep: int) -> Iterator[Path]:
    """Yield the temporary path of a checkpoint; on success rename it and remove old checkpoints."""
    folder.mkdir(parents=True, exist_ok=True)
    path = path_of(folder, step)
    # A killed run may have left part of a file, which would keep its room on the disk.
    for stale in folder.glob("*.part"):
        stale.unlink(missing_ok=True)
    with storage.replacing(path, durable=True) as part:
        yield part
    for old in _newest_first(folder)[keep:]:
        if old != path:
            old.unlink()


def path_of(folder: Path, step: int) -> Path:
    return folder / f"step-{step:09d}.safetensors"


def load_latest(
    folder: Path, algorithm: Algorithm, fingerprint: str, device: torch.device | str = "cpu"
) -> Checkpoint | None:
    """The newest readable checkpoint in a folder, or None if the folder has none.

    Damaged files are skipped; if all are damaged, Misuse is raised. On the device "meta" the
    tensors have shapes only.
    """
    problems = []
    for path in _newest_first(folder):
        try:
            checkpoint = _load(path, algorithm, device)
        except (OSError, ValueError, KeyError, TypeError) as problem:
            problems.append(f"{path.name}: {problem}")
            continue
        if checkpoint.fingerprint != fingerprint:
            raise Misuse(
                f"{path} belongs to a run with another configuration.",
                "Resume with the configuration of that folder, or choose another output folder.",
            )
        return checkpoint
    if problems:
        raise Misuse(
            f"No checkpoint in {folder} can be read ({'; '.join(problems)}).",
            "Start the run again.",
        )
    return None


def saved_fingerprint(folder: Path) -> str | None:
    """The fingerprint in the newest checkpoint of a folder; None if it has no readable one."""
    from safetensors import SafetensorError, safe_open

    for path in _newest_first(folder):
        with (
            suppress(SafetensorError, OSError, ValueError, KeyError, TypeError),
            safe_open(path, framework="pt") as file,
        ):
            return str(json.loads((file.metadata() or {})["tacit"])["fingerprint"])
    return None


def read_latest(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of the newest checkpoint by name, and its facts, of whichever algorithm.

    Raises:
        Misuse: If the folder has none, or it is damaged.
    """
    for path in _newest_first(folder):
        try:
            return _read(path, "cpu")
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise Misuse(f"{path} cannot be read: {problem}.", "Run it again.") from None
    raise Misuse(f"There is no checkpoint in {folder}.", "Run it again, to the end.")


def _load(path: Path, algorithm: Algorithm, device: torch.device | str) -> Checkpoint:
    tensors, facts = _read(path, device)
    local = tensors.pop(LOCAL, None)
    late = {name: tensors.pop(name) for name in list(tensors) if name.startswith(LATE)}
    late = {name.removeprefix(LATE): rows for name, rows in late.items()}
    state = algorithm.state_class(**tensors)
    required = {name: facts[name] for name in FACTS if name != "privacy"}
    return Checkpoint(state, **required, privacy=facts.get("privacy"), local=local, late_rows=late)


def _read(path: Path, device: torch.device | str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    from safetensors import SafetensorError, safe_open

    shapes_only = str(device) == "meta"
    try:
        with safe_open(path, framework="pt", device="cpu" if shapes_only else str(device)) as file:
            facts = json.loads((file.metadata() or {})["tacit"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            # Copies, because the tensors of safe_open are mapped from the file and change with it.
            tensors = {name: x.to(device, copy=True) for name, x in tensors.items()}
    except SafetensorError as problem:
        raise ValueError(str(problem)) from None
    if facts["format"] != FORMAT:
        raise ValueError(f"unknown format {facts['format']!r}")
    return tensors, facts


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"step-{'[0-9]' * 9}.safetensors"), reverse=True)
