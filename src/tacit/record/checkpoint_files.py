"""Folders of checkpoints: tensors and facts in safetensors files, for runs and for nodes.

A checkpoint exists completely or not at all, and the newest few are kept: if one is damaged, work
continues from the one before.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from tacit.core import storage

# What reading a damaged file raises.
UNREADABLE = (OSError, ValueError, KeyError, TypeError)
T = TypeVar("T")


@dataclass(frozen=True)
class CheckpointFiles:
    """The checkpoints in a folder.

    Attributes:
        folder: Where they are; other files in it are left alone.
        format: Written into each file, and required of it.
        pattern: The whole name of a checkpoint file.
        order: A match of the name → a key that grows with time.
        with_digest: Whether files hold a digest of all that is in them.
    """

    folder: Path
    format: str
    pattern: re.Pattern[str]
    order: Callable[[re.Match[str]], Any]
    with_digest: bool = False

    def newest_first(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        names = (self.pattern.fullmatch(path.name) for path in self.folder.iterdir())
        matches = [match for match in names if match is not None]
        matches.sort(key=self.order, reverse=True)
        return [self.folder / match[0] for match in matches]

    def newest(self, read: Callable[[Path], T]) -> tuple[T | None, list[str]]:
        """What is read from the newest file that is not damaged; why newer ones were skipped."""
        problems: list[str] = []
        for path in self.newest_first():
            try:
                return read(path), problems
            except UNREADABLE as problem:
                problems.append(f"{path.name}: {problem}")
        return None, problems

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yield a temporary path; what the block writes there becomes the checkpoint `name`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # A killed process may have left part of a file, which would keep its room on the disk.
        storage.remove_parts(self.folder, self.pattern)
        with storage.replacing(self.folder / name, durable=True) as part:
            yield part

    def write(self, name: str, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Path:
        """Write a checkpoint; raises OSError if that fails."""
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        # Copies: rows may be views or share memory, which safetensors does not allow.
        copies = {
            tag: rows.detach().cpu().clone(memory_format=torch.contiguous_format)
            for tag, rows in tensors.items()
        }
        with self.writing(name) as part:
            try:
                save_file(copies, part, metadata=self.metadata(facts, copies))
            # Raised instead of OSError if the disk is full.
            except SafetensorError as problem:
                raise OSError(str(problem)) from None
        return self.folder / name

    def metadata(
        self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None
    ) -> dict[str, str]:
        """What a file holds beside its tensors; these are needed for the digest only."""
        whole = {"format": self.format, **facts}
        if self.with_digest:
            assert tensors is not None
            whole["sha256"] = _digest(whole, tensors)
        return {"tacit": json.dumps(whole)}

    def remove_old(self, keep: int, but: str = "") -> None:
        """Remove all but the newest `keep`, and never the one called `but`."""
        for path in self.newest_first()[keep:]:
            if path.name != but:
                path.unlink()

    def read(
        self, path: Path, device: torch.device | str = "cpu"
    ) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The tensors and the facts of a file; on the device "meta" tensors have shapes only.

        Raises:
            OSError, ValueError, KeyError, TypeError: If the file is damaged.
        """
        from safetensors import SafetensorError, safe_open

        facts = self.facts(path)
        shapes_only = str(device) == "meta"
        try:
            with safe_open(
                path, framework="pt", device="cpu" if shapes_only else str(device)
            ) as file:
                # Copies, because the tensors of safe_open are mapped from the file and change
                # with it.
                tensors = {
                    tag: file.get_tensor(tag).to(device, copy=True)
                    for tag in file.keys()  # noqa: SIM118 (not a dict)
                }
        except SafetensorError as problem:
            raise ValueError(str(problem)) from None
        if facts["format"] != self.format:
            raise ValueError(f"unknown format {facts['format']!r}")
        if self.with_digest:
            sha256 = facts.pop("sha256")
            if _digest(facts, tensors) != sha256:
                raise ValueError("its checksum does not match")
        return tensors, facts

    def facts(self, path: Path) -> dict[str, Any]:
        """The facts of a file alone, unchecked; raises what `read` raises."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="pt") as file:
                facts: dict[str, Any] = json.loads((file.metadata() or {})["tacit"])
        except SafetensorError as problem:
            raise ValueError(str(problem)) from None
        return facts


def _digest(facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for tag in sorted(tensors):
        rows = tensors[tag]
        digest.update(f"{tag}:{rows.dtype}:{tuple(rows.shape)};".encode())
        digest.update(rows.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
