"""Downloading: every file arrives whole and checked, or not at all."""

from __future__ import annotations

import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tacit.core import storage
from tacit.core.errors import Misuse
from tacit.data.checksums import mismatch
from tacit.data.progress import progress
from tacit.data.source import DatasetSource, RemoteFile

CHUNK = 256 * 1024
_WORTH_RETRYING = (408, 425, 429)
"""HTTP refusals that may pass; every other 4xx answer will be the same next time."""


@dataclass(frozen=True)
class Patience:
    """How long to insist: tries per address, seconds between them (doubled each time), seconds of silence."""

    attempts: int = 3
    pause: float = 1.0
    timeout: float = 30.0


class DownloadFailed(Exception):
    """No address gave the file; `reasons` says of each try what happened."""

    def __init__(self, reasons: list[str]) -> None:
        self.reasons = reasons
        super().__init__("; ".join(reasons))


class _TryFailed(Exception):
    def __init__(self, reason: str, final: bool = False) -> None:
        self.final = final
        super().__init__(reason)


def fetch_source(source: DatasetSource, folder: Path, patience: Patience) -> list[Path]:
    """Make the dataset's files in `folder`: those already there and right are kept."""
    _make_folder(folder)
    try:
        if not source.files:
            raise DownloadFailed([])
        for file in source.files:
            path = folder / file.name
            if not path.is_file() or mismatch(file, path, as_downloaded=False):
                download(file, folder, patience)
        return [folder / file.name for file in source.files]
    except DownloadFailed as failure:
        if source.otherwise is None:
            raise
        try:
            return _make_otherwise(source, source.otherwise, folder)
        except DownloadFailed as second:
            raise DownloadFailed(failure.reasons + second.reasons) from second


def _make_otherwise(
    source: DatasetSource, make: Callable[[Path], list[Path]], folder: Path
) -> list[Path]:
    try:
        made = make(folder)
    except Exception as error:  # scikit-learn and its helpers raise whatever they like
        raise DownloadFailed([f"by scikit-learn: {type(error).__name__}: {error}"]) from error
    for file in source.files:
        if problem := mismatch(file, folder / file.name, as_downloaded=False):
            for path in made:
                path.unlink(missing_ok=True)
            raise DownloadFailed([f"by scikit-learn: {file.name}: {problem}"])
    return made


def download(file: RemoteFile, folder: Path, patience: Patience) -> Path:
    """Get one file from the first of its mirrors that gives it whole and with the right checksum."""
    reasons: list[str] = []
    for url in file.urls:
        for attempt in range(patience.attempts):
            if attempt:
                time.sleep(patience.pause * 2 ** (attempt - 1))
            try:
                return _try(url, file, folder / file.name, patience.timeout)
            except _TryFailed as failure:
                reasons.append(f"{url}: {failure}")
                if failure.final:
                    break
    raise DownloadFailed(reasons)


def _try(url: str, file: RemoteFile, target: Path, timeout: float) -> Path:
    try:
        with storage.replacing(target) as part:
            _transfer(url, file, part, timeout)
            if problem := mismatch(file, part):
                raise _TryFailed(problem)
    except urllib.error.HTTPError as error:
        final = 400 <= error.code < 500 and error.code not in _WORTH_RETRYING
        raise _TryFailed(f"HTTP {error.code} {error.reason}", final) from error
    except (OSError, http.client.HTTPException) as error:
        raise _TryFailed(f"{type(error).__name__}: {error}") from error
    return target


def _transfer(url: str, file: RemoteFile, part: Path, timeout: float) -> None:
    request = urllib.request.Request(url, headers={"User-Agent": "tacit"})
    opener = (
        urllib.request.build_opener()
    )  # of our own: urlopen keeps one with the proxies of its first call
    with opener.open(request, timeout=timeout) as answer, part.open("wb") as out:
        length = answer.headers.get("Content-Length")
        promised = int(length) if length and length.isdigit() else None
        arrived = 0
        with progress(file.name, promised or file.size) as advance:
            while chunk := answer.read(CHUNK):
                out.write(chunk)
                arrived += len(chunk)
                advance(len(chunk))
                if file.size is not None and arrived > file.size:
                    raise _TryFailed(f"more than the {file.size:,} bytes of {file.name} arrived")
    if promised is not None and arrived < promised:
        raise _TryFailed(f"the connection ended after {arrived:,} of {promised:,} bytes")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_writable(folder, str(error)) from error
    if not os.access(folder, os.W_OK):
        raise _not_writable(folder, "permission denied")


def _not_writable(folder: Path, reason: str) -> Misuse:
    return Misuse(
        f"cannot write downloads into {folder}: {reason}.",
        "Name a folder that can be written to, with --data or the environment variable TACIT_DATA.",
    )
