"""Downloads and checksums: a file arrives complete and correct, or not at all."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import os
import tarfile
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tacit.core import storage
from tacit.core.errors import Misuse
from tacit.data.dataset import DatasetSource, RemoteFile

CHUNK = 256 * 1024
# Attempts per URL; seconds before the second attempt, and each later pause is twice as long;
# seconds without data after which an attempt fails.
ATTEMPTS, PAUSE, TIMEOUT = 3, 1.0, 30.0
# Other 4xx answers will be the same next time.
_RETRIED_CLIENT_ERRORS = (408, 425, 429)


class DownloadError(Exception):
    """No URL gave the file; `reasons` has the outcome of each attempt."""

    def __init__(self, reasons: list[str]) -> None:
        self.reasons = reasons
        super().__init__("; ".join(reasons))


class _AttemptFailed(Exception):
    def __init__(self, reason: str, final: bool = False) -> None:
        self.final = final
        super().__init__(reason)


def fetch_source(source: DatasetSource, folder: Path) -> list[Path]:
    """Download a dataset's files to `folder`, except those that are there and correct.

    The fallback makes them if there is no mirror or all mirrors failed.
    """
    _make_folder(folder)
    reasons: list[str] = []
    if source.files:
        try:
            for file in source.files:
                path = folder / file.name
                if not path.is_file() or mismatch(file, path, as_downloaded=False):
                    download(file, folder)
            return [folder / file.name for file in source.files]
        except DownloadError as failure:
            reasons = failure.reasons
    if source.fallback is None:
        raise DownloadError(reasons)
    try:
        made = source.fallback(folder)
    # scikit-learn and its dependencies raise many types of errors.
    except Exception as error:
        reasons.append(f"by scikit-learn: {type(error).__name__}: {error}")
        raise DownloadError(reasons) from error
    for file in source.files:
        if problem := mismatch(file, folder / file.name, as_downloaded=False):
            for path in made:
                path.unlink(missing_ok=True)
            raise DownloadError([*reasons, f"by scikit-learn: {file.name}: {problem}"])
    return made


def download(file: RemoteFile, folder: Path) -> Path:
    """Download one file from the first mirror that delivers it with the right checksum."""
    reasons: list[str] = []
    for url in file.urls:
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(PAUSE * 2 ** (attempt - 1))
            try:
                return _attempt(url, file, folder / file.name)
            except _AttemptFailed as failure:
                reasons.append(f"{url}: {failure}")
                if failure.final:
                    break
    raise DownloadError(reasons)


def _attempt(url: str, file: RemoteFile, target: Path) -> Path:
    try:
        with storage.replacing(target) as part:
            _transfer(url, file, part)
            if problem := mismatch(file, part):
                raise _AttemptFailed(problem)
    except urllib.error.HTTPError as error:
        final = 400 <= error.code < 500 and error.code not in _RETRIED_CLIENT_ERRORS
        raise _AttemptFailed(f"HTTP {error.code} {error.reason}", final) from error
    except (OSError, http.client.HTTPException) as error:
        raise _AttemptFailed(f"{type(error).__name__}: {error}") from error
    return target


def _transfer(url: str, file: RemoteFile, part: Path) -> None:
    request = urllib.request.Request(url, headers={"User-Agent": "tacit"})
    # Not urlopen, which keeps the proxies of its first call.
    opener = urllib.request.build_opener()
    with opener.open(request, timeout=TIMEOUT) as response, part.open("wb") as out:
        length = response.headers.get("Content-Length")
        announced = int(length) if length and length.isdigit() else None
        received = 0
        with progress(file.name, announced or file.size) as advance:
            while chunk := response.read(CHUNK):
                out.write(chunk)
                received += len(chunk)
                advance(len(chunk))
                if file.size is not None and received > file.size:
                    raise _AttemptFailed(f"{file.name} has more than {file.size:,} bytes")
    if announced is not None and received < announced:
        raise _AttemptFailed(f"the connection ended after {received:,} of {announced:,} bytes")


def mismatch(file: RemoteFile, path: Path, *, as_downloaded: bool = True) -> str:
    """What is wrong with the file at `path`; empty if every checksum agrees.

    Files that a fallback made (`as_downloaded=False`) have other gzip headers, so only their
    contents are compared.
    """
    try:
        if file.sha256 and (as_downloaded or not file.contents_sha256):
            with path.open("rb") as stream:
                if problem := _compare("SHA-256", stream, "sha256", file.sha256):
                    return problem
        if file.contents_sha256:
            with gzip.open(path) as stream:
                title = "SHA-256 of its contents"
                if problem := _compare(title, stream, "sha256", file.contents_sha256):
                    return problem
        return _compare_members(file, path) if file.members_sha1 else ""
    except (EOFError, OSError, zlib.error, tarfile.TarError) as error:
        return f"it cannot be read ({error})"


def _compare_members(file: RemoteFile, path: Path) -> str:
    missing = dict(file.members_sha1)
    with tarfile.open(path) as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.name in missing else None
            if stream is not None:
                expected = missing.pop(member.name)
                if problem := _compare(f"SHA-1 of {member.name}", stream, "sha1", expected):
                    return problem
    return f"it has no member {', '.join(missing)}" if missing else ""


def _compare(title: str, stream: Any, algorithm: str, expected: str) -> str:
    found = hashlib.file_digest(stream, algorithm).hexdigest()
    return "" if found == expected else f"its {title} is {found}, not {expected}"


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError("permission denied")
    except OSError as error:
        raise Misuse(
            f"Cannot write downloads into {folder}: {error}.",
            "Name a writable folder with --data or the environment variable TACIT_DATA.",
        ) from error


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error; yield a function that adds received bytes."""
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.DownloadColumn(),
        bars.TransferSpeedColumn(),
    )
    with bars.Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total)
        yield lambda received: bar.advance(task, received)
