"""Checksums of downloaded files."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import zlib
from io import BufferedIOBase
from pathlib import Path
from typing import IO

from tacit.data.source import RemoteFile

CHUNK = 2**20


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


def _compare(title: str, stream: BufferedIOBase | IO[bytes], algorithm: str, expected: str) -> str:
    digest = hashlib.new(algorithm)
    while chunk := stream.read(CHUNK):
        digest.update(chunk)
    found = digest.hexdigest()
    return "" if found == expected else f"its {title} is {found}, not {expected}"
