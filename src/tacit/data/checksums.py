"""Is a downloaded file the one that was published?"""

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
    """Return what is wrong with the file at `path`, or an empty string when every checksum agrees.

    Files that we made ourselves (`as_downloaded=False`) have another gzip wrapper: then only the
    contents are compared.
    """
    try:
        if file.sha256 and (as_downloaded or not file.contents_sha256):
            with path.open("rb") as stream:
                if problem := _compare("SHA-256", stream, "sha256", file.sha256):
                    return problem
        if file.contents_sha256:
            with gzip.open(path) as stream:
                if problem := _compare(
                    "SHA-256 of its contents", stream, "sha256", file.contents_sha256
                ):
                    return problem
        return _members(file, path) if file.members_sha1 else ""
    except (EOFError, OSError, zlib.error, tarfile.TarError) as error:
        return f"it cannot be read ({error})"


def _members(file: RemoteFile, path: Path) -> str:
    unseen = dict(file.members_sha1)
    with tarfile.open(path) as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.name in unseen else None
            if stream is None:
                continue
            if problem := _compare(
                f"SHA-1 of {member.name}", stream, "sha1", unseen.pop(member.name)
            ):
                return problem
    return f"it has no member {', '.join(unseen)}" if unseen else ""


def _compare(what: str, stream: BufferedIOBase | IO[bytes], algorithm: str, expected: str) -> str:
    digest = hashlib.new(algorithm)
    while chunk := stream.read(CHUNK):
        digest.update(chunk)
    found = digest.hexdigest()
    return "" if found == expected else f"its {what} is {found}, not {expected}"
