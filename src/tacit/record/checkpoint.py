"""Checkpoints: the state of a run as safetensors, written whole or not at all."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tacit.algorithms.algorithm import Algorithm, state_type, tensors_of
from tacit.core import storage
from tacit.core.errors import Misuse

NAME = re.compile(r"step-(\d{9})\.safetensors")
FORMAT = "tacit-checkpoint-1"
FACTS = ("step", "bytes_sent", "wall_seconds", "fingerprint", "gradients", "diverged")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state after `step` iterations and what else a run needs to go on as if never stopped."""

    state: Any
    step: int
    bytes_sent: int
    wall_seconds: float
    fingerprint: str  # of the configuration the state belongs to
    diverged: str | None = None  # where it first did, if that was allowed
    gradients: str = "auto"  # how gradients were taken: the other way would round differently


def save(folder: Path, checkpoint: Checkpoint, keep: int = 2) -> Path:
    """Write a checkpoint and remove all but the newest `keep`; a reader never sees half a file."""
    from safetensors.torch import save_file

    # Fields may share memory (DSGT's first tracker is its gradient) or be views, which the format does not allow.
    whole = torch.contiguous_format
    fields = tensors_of(checkpoint.state)
    tensors = {
        name: rows.detach().cpu().clone(memory_format=whole) for name, rows in fields.items()
    }
    with replacing(folder, checkpoint.step, keep) as part:
        save_file(tensors, part, metadata=metadata(checkpoint))
    return path_of(folder, checkpoint.step)


def metadata(checkpoint: Checkpoint) -> dict[str, str]:
    """What a file says besides the tensors."""
    facts = {name: getattr(checkpoint, name) for name in FACTS}
    return {"tacit": json.dumps({"format": FORMAT} | facts)}


@contextmanager
def replacing(folder: Path, step: int, keep: int) -> Iterator[Path]:
    """Where to write the checkpoint of an iteration; it takes its place when it is whole, and old ones go."""
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
    """The file of the checkpoint after `step` iterations."""
    return folder / f"step-{step:09d}.safetensors"


def load_latest(
    folder: Path, algorithm: Algorithm, fingerprint: str, device: torch.device | str = "cpu"
) -> Checkpoint | None:
    """The newest readable checkpoint in a folder, or None if there is none; a damaged one is passed over.

    On the device "meta" it has the shapes of its tensors only.
    """
    files = _newest_first(folder)
    problems = []
    for path in files:
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
            f"No checkpoint in {folder} can be read ({'; '.join(problems)}).", "Start the run anew."
        )
    return None


def _load(path: Path, algorithm: Algorithm, device: torch.device | str) -> Checkpoint:
    from safetensors import SafetensorError, safe_open

    shapes_only = str(device) == "meta"
    try:
        with safe_open(path, framework="pt", device="cpu" if shapes_only else str(device)) as file:
            facts = json.loads((file.metadata() or {})["tacit"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            # Cloned: what the file hands out is mapped from it, and would change with it.
            tensors = {
                name: x.to(device) if shapes_only else x.clone() for name, x in tensors.items()
            }
    except SafetensorError as problem:
        raise ValueError(str(problem)) from None
    if facts["format"] != FORMAT:
        raise ValueError(f"unknown format {facts['format']!r}")
    state = state_type(type(algorithm))(**tensors)
    return Checkpoint(state, **{name: facts[name] for name in FACTS})


def _newest_first(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted((path for path in folder.iterdir() if NAME.fullmatch(path.name)), reverse=True)
