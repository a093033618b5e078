"""A dataset's files: finding them on this computer and downloading those that are missing."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

from tacit.core.errors import Misuse
from tacit.data.dataset import DatasetSource, Layout, LocatedFiles
from tacit.data.download import DownloadError, fetch_source
from tacit.data.sources import SOURCES

_FOLDERS = {source.folder for source in SOURCES.values() if source.folder}


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder of all datasets: the argument, else $TACIT_DATA, else the user's cache."""
    if folder is not None:
        given: Any = folder
        if not isinstance(given, str | os.PathLike):
            problem = f"The folder of the datasets is a {type(given).__name__}."
            raise Misuse(problem, "Give the name of a folder, or None.")
        return Path(folder).expanduser()
    if configured := os.environ.get("TACIT_DATA"):
        return Path(configured).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return Path(cache or os.path.expanduser("~/.cache")) / "tacit" / "data"


def search_folders(source: DatasetSource, base: Path) -> list[Path]:
    """The folders to search for a dataset: its own below `base`, and `base` itself.

    MNIST and Fashion-MNIST have files of the same names. To tell them apart, a `base` with the name
    of another dataset's folder is not searched.
    """
    if not source.layouts:
        return []
    folder = base / source.folder
    return [folder] if base.name in _FOLDERS - {source.folder} else [folder, base]


def locate(source: DatasetSource, folders: list[Path]) -> LocatedFiles | None:
    """The first complete layout in these folders, else the fullest incomplete one, else None."""
    if not source.layouts:
        return LocatedFiles("", {}, complete=True)
    matches = [
        match for folder in folders for each in source.layouts if (match := _match(each, folder))
    ]
    complete = [match for match in matches if match.complete]
    return next(iter(complete), max(matches, key=lambda match: len(match.paths), default=None))


def locate_or_fetch(source: DatasetSource, base: Path, download: bool) -> LocatedFiles:
    """The files of a dataset, downloaded if they are missing and `download` allows it."""
    folders = search_folders(source, base)
    files = locate(source, folders)
    if files is None:
        _check_unsafe_files(source, folders)
        if download:
            fetch_files(source, base)
            files = locate(source, folders)
    if files is None:
        searched = " and ".join(str(folder) for folder in folders)
        raise Misuse(f"{source.name}: its files are not in {searched}.", _remedy(source, base))
    return files


def fetch_files(source: DatasetSource, base: Path) -> list[Path]:
    """Download the files of a dataset; Misuse has the reason of every failed attempt."""
    if not source.layouts:
        return []
    try:
        return fetch_source(source, base / source.folder)
    except DownloadError as failure:
        reasons = "".join(
            f"\n  {reason}" + (f" ({count} times)" if count > 1 else "")
            for reason, count in Counter(failure.reasons).items()
        )
        problem = f"{source.name}: the download failed:{reasons}\n"
        raise Misuse(problem, _remedy(source, base)) from failure


def _match(layout: Layout, folder: Path) -> LocatedFiles | None:
    required = {role: _first_file(folder, names) for role, names in layout.required.items()}
    parts = {role: _first_file(folder, names) for role, names in layout.parts.items()}
    if None in required.values() or (parts and not any(parts.values())):
        return None
    paths = {role: path for role, path in (required | parts).items() if path is not None}
    return LocatedFiles(layout.name, paths, complete=None not in parts.values())


def _first_file(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _check_unsafe_files(source: DatasetSource, folders: list[Path]) -> None:
    """Raise Misuse if the only copy of a dataset is in a format that is not read."""
    for folder in folders:
        for name, reason in source.unsafe_files.items():
            if (folder / name).exists():
                raise Misuse(
                    f"{source.name}: {folder / name} is not read: {reason}.",
                    f"Get {', '.join(file.name for file in source.files)} instead: "
                    f"`tacit data fetch {source.name}`, or from {source.page}.",
                )


def _remedy(source: DatasetSource, base: Path) -> str:
    """Which files to put where, and where to get them."""
    fetched = {file.name for file in source.files}
    layout = source.layouts[0]
    for each in source.layouts:
        if fetched and all(fetched & set(accepted) for accepted in each.required.values()):
            layout = each
            break
    wanted = {**layout.required, **layout.parts}
    files = ", ".join(f"{source.folder}/{accepted[0]}" for accepted in wanted.values())
    urls = [url for file in source.files for url in file.urls] or [source.page]
    return (
        f"Put {files} below the data folder {base} (set it with --data or the environment "
        f"variable TACIT_DATA). Get them with `tacit data fetch {source.name}` or from "
        f"{', '.join(urls)}."
    )
