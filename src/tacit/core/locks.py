"""Locks between processes, on files and folders; the system gives them back when their holder dies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path


def possible() -> bool:
    """Whether this system has such locks; without them everybody is told to have every one."""
    return find_spec("fcntl") is not None


@contextmanager
def lock(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Whether this process has it: one at a time does; without `wait`, not if another one has it now."""
    if not possible():
        yield True
        return
    import fcntl

    # A network's file system locks only what is open for writing, which a folder cannot be.
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
