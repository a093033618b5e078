"""Files: atomic, durable and private writes, JSON, and locks between processes."""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tacit.core.errors import Misuse

# The end of the name of a temporary file.
PART = re.compile(r"\.[0-9a-f]{8}\.part$")


@contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """Yield a temporary path; what the block writes there replaces `path` in one step.

    Readers and concurrent writers of `path` see the old or the new content, never a part of it. If
    the block fails, the old content stays and the temporary file is removed. The folder of `path`
    must exist. To survive a power failure too, `durable` syncs the file before and the folder after
    the step.
    """
    # Two processes may write the same file, so each has its own temporary one.
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        yield part
        if durable:
            _sync(part)
        os.replace(part, path)
        if durable:
            _sync(path.parent)
    finally:
        part.unlink(missing_ok=True)


def remove_parts(folder: Path, pattern: re.Pattern[str]) -> None:
    """Remove what a killed process has left of files with such names; see `replacing`."""
    for part in folder.glob("*.part"):
        if pattern.fullmatch(PART.sub("", part.name)):
            part.unlink(missing_ok=True)


def require_writable(folder: Path) -> None:
    """Raise Misuse if files cannot be written into a folder, which need not exist yet.

    It tries, and leaves nothing behind.
    """
    made: list[Path] = []
    try:
        made = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f"{secrets.token_hex(4)}.part"
        probe.touch()
        probe.unlink()
    except OSError as problem:
        raise Misuse(
            f"Cannot write into the folder {folder}: {problem.strerror}.",
            "Choose another folder.",
        ) from None
    finally:
        for path in made:
            with suppress(OSError):
                path.rmdir()


def write_bytes(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Replace the content of a file in one step; see `replacing`."""
    with replacing(path, durable=durable) as part:
        part.write_bytes(content)


def write_text(path: Path, text: str, *, durable: bool = False) -> None:
    """Replace the content of a file in one step, as UTF-8; see `replacing`."""
    write_bytes(path, text.encode(), durable=durable)


def append_text(path: Path, text: str) -> None:
    """Append text as UTF-8. If the disk is full, the file stays as it was and OSError is raised."""
    content = text.encode()
    with path.open("ab", buffering=0) as file:
        before = file.tell()
        try:
            if file.write(content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            file.truncate(before)
            raise


def write_json(path: Path, value: Any) -> None:
    """Replace a file with indented JSON in one step."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path, remedy: str = "Run again.") -> dict[str, Any]:
    """Read a JSON object; raise Misuse with this remedy if the file holds anything else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise Misuse(f"{path} cannot be read: {problem}.", remedy) from None
    if not isinstance(value, dict):
        raise Misuse(f"{path} does not hold a JSON object.", remedy)
    return value


def write_private(path: Path, content: bytes) -> None:
    """Write a new file with mode 0600 from its creation on, durably; existing files are kept."""
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
    _sync(path.parent)


def read_private(path: Path) -> bytes:
    """Read a private file; raise Misuse if anyone but its owner may read or write it."""
    try:
        with path.open("rb") as file:
            # The mode of the open file, so that no other file can take its place in between.
            others = os.fstat(file.fileno()).st_mode & 0o077
            # Only POSIX systems give these bits a meaning.
            if others and os.name == "posix":
                raise Misuse(f"Others than you may read or write {path}.", f"Run chmod 600 {path}.")
            return file.read()
    except FileNotFoundError:
        raise Misuse(
            f"There is no private key {path}.", "Copy the node's whole folder, keys included."
        ) from None
    except OSError as problem:
        raise Misuse(
            f"Cannot read {path}: {problem}.", "Check its owner and permissions."
        ) from None


def locks_supported() -> bool:
    """Whether this system has file locks; without them `file_lock` always succeeds."""
    return find_spec("fcntl") is not None


@contextmanager
def file_lock(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold an exclusive lock on a folder, or on a file, which is created if it does not exist.

    Yields whether this process has it: with `wait` as soon as it is free, otherwise False if
    another process has it. The system releases the lock when the process dies.
    """
    if not locks_supported():
        yield True
        return
    import fcntl

    # Network file systems lock only what is open for writing, which a folder cannot be.
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)


def _sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    if path.is_dir() and os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
