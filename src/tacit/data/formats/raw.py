"""Datasets as read from files, and the contents of compressed files and archives."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import Misuse

GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True, eq=False)
class RawSplit:
    """Samples (uint8 images, float32 rows or a SciPy CSR matrix) and their class numbers."""

    x: Any
    y: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RawDataset:
    """Both splits; the note says what is special about them."""

    train: RawSplit
    test: RawSplit
    note: str = ""


def damaged(path: Path | str, found: str, expected: str) -> Misuse:
    """The error for a file whose contents are not what its name promises."""
    return Misuse(
        f"{path}: {found}; expected {expected}.",
        "The file is damaged or is another file: delete it and fetch it again "
        "(`tacit data fetch`).",
    )


def read_bytes(path: Path) -> bytes:
    """The contents of a plain or gzip file.

    The first bytes decide, not the name, because browsers and proxies may decompress `.gz` files.
    """
    raw = path.read_bytes()
    if not raw.startswith(GZIP_MAGIC):
        return raw
    try:
        return gzip.decompress(raw)
    except (EOFError, OSError, zlib.error) as error:
        raise damaged(
            path, f"its gzip stream is broken ({error})", "a complete gzip file"
        ) from error


def read_members(path: Path, names: tuple[str, ...], largest: int) -> dict[str, bytes]:
    """The contents of the named members that a tar archive has; nothing is written to disk.

    Members must be regular files of at most `largest` bytes.
    """
    members: dict[str, bytes] = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = member.name.removeprefix("./")
                if name not in names or not member.isfile():
                    continue
                if member.size > largest:
                    found = f"its member {member.name} has {member.size:,} bytes"
                    raise damaged(path, found, f"at most {largest:,}")
                stream = archive.extractfile(member)
                if stream is not None:
                    members[name] = stream.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        expected = "a complete gzipped tar archive"
        raise damaged(path, f"the archive is broken ({error})", expected) from error
    return members
