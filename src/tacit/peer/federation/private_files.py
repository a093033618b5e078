"""Files that others must not read, that must not be half written, or that two must not change at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tacit.core.errors import Misuse
from tacit.core.locks import lock


def write_private(path: Path, content: bytes) -> None:
    """Write a new file that only its owner may read, from its first moment on; nothing is overwritten."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise Misuse(
            f"{path} exists already.", "Move it away: a private key is never overwritten."
        ) from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def read_private(path: Path) -> bytes:
    """Read a private file, refused when others than its owner may read it."""
    try:
        with path.open("rb") as file:
            # Asked of the open file, so that nobody can put another in its place in between.
            others = os.fstat(file.fileno()).st_mode & 0o077
            if others and os.name == "posix":  # elsewhere these bits say nothing
                raise Misuse(f"Others than you may read or write {path}.", f"Run chmod 600 {path}.")
            return file.read()
    except FileNotFoundError:
        raise Misuse(
            f"There is no private key {path}.", "Copy the node's whole folder, keys included."
        ) from None
    except OSError as problem:
        raise Misuse(f"Cannot read {path}: {problem}.", "Check its owner and its rights.") from None


def replace(path: Path, content: bytes) -> None:
    """Put new content in a file's place in one step, so that after a crash there is the old or the new."""
    aside = path.with_name(f"{path.name}.new")
    with aside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)
    if os.name == "posix":  # the new name is on the disk only once its folder is
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextmanager
def locked(folder: Path, taken: str | None = None) -> Iterator[None]:
    """Let one process at a time change what is in a folder; others wait, or are refused with the words `taken`."""
    with lock(folder, wait=taken is None) as had:
        if not had:
            raise Misuse(taken or "", "Stop that one first.")
        yield
