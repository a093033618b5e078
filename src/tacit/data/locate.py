"""Finding a dataset's files on this computer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tacit.core.errors import Misuse
from tacit.data.source import DatasetSource, Form


@dataclass(frozen=True)
class Found:
    """The files of one form of a dataset: role → path."""

    form: str
    paths: Mapping[str, Path]
    complete: bool


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """Where datasets lie and are downloaded to: the argument, else $TACIT_DATA, else the user's cache."""
    if folder is not None:
        return Path(folder).expanduser()
    if named := os.environ.get("TACIT_DATA"):
        return Path(named).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return Path(cache or os.path.expanduser("~/.cache")) / "tacit" / "data"


def places(source: DatasetSource, base: Path, other_folders: frozenset[str]) -> list[Path]:
    """The folders in which a dataset may lie: its own below `base`, or `base` itself.

    MNIST and Fashion-MNIST have files of the same names: a `base` that bears the name of another
    dataset's folder is not looked into, so that one is never taken for the other.
    """
    own = base / source.folder
    if base.name in other_folders - {source.folder}:
        return [own]
    return [own, base]


def locate(source: DatasetSource, folders: list[Path]) -> Found | None:
    """Return the first complete form of the dataset in these folders, else the fullest partial one."""
    found = [
        match for folder in folders for form in source.forms if (match := _match(form, folder))
    ]
    complete = [match for match in found if match.complete]
    if complete:
        return complete[0]
    return max(found, key=lambda match: len(match.paths), default=None)


def refuse_unreadable(source: DatasetSource, folders: list[Path]) -> None:
    """Say why a copy that is there is not read (call it when nothing readable was found)."""
    for folder in folders:
        for name, reason in source.refused.items():
            if (folder / name).exists():
                raise Misuse(
                    f"{source.name}: {folder / name} is not read: {reason}.",
                    f"Get {', '.join(file.name for file in source.files)} instead: "
                    f"`tacit data fetch {source.name}`, or from {source.page}.",
                )


def _match(form: Form, folder: Path) -> Found | None:
    needed = {role: _first_file(folder, names) for role, names in form.needed.items()}
    parts = {role: _first_file(folder, names) for role, names in form.some_of.items()}
    if None in needed.values() or (parts and not any(parts.values())):
        return None
    paths = {role: path for role, path in (needed | parts).items() if path is not None}
    return Found(form.name, paths, complete=None not in parts.values())


def _first_file(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)
