"""Bytes of a file, decompressed when need be."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from pathlib import Path

from tacit.data.formats.raw import damaged

GZIP_MAGIC = b"\x1f\x8b"


def read_bytes(path: Path) -> bytes:
    """Return the contents of a plain or gzip file.

    The first bytes decide, not the name: browsers and proxies like to decompress `.gz` files silently.
    """
    raw = path.read_bytes()
    if not raw.startswith(GZIP_MAGIC):
        return raw
    try:
        return gzip.decompress(raw)
    except (EOFError, OSError, zlib.error) as error:
        raise damaged(path, f"its gzip stream is broken ({error})", "a whole gzip file") from error


def read_members(path: Path, names: tuple[str, ...], largest: int) -> dict[str, bytes]:
    """Return the named members of a tar archive that are there; nothing is extracted to disk.

    A member counts by its full name, must be a regular file, and may have at most `largest` bytes.
    """
    members: dict[str, bytes] = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                if member.name.removeprefix("./") not in names or not member.isfile():
                    continue
                if member.size > largest:
                    raise damaged(
                        path,
                        f"its member {member.name} has {member.size:,} bytes",
                        f"at most {largest:,}",
                    )
                stream = archive.extractfile(member)
                if stream is not None:
                    members[member.name.removeprefix("./")] = stream.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise damaged(
            path, f"the archive is broken ({error})", "a whole gzipped tar archive"
        ) from error
    return members
