"""Locks between processes, on files and folders; the system gives them back when their holder dies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def lock(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Whether this process has it: one at a time does; without `wait`, not if another one has it now."""
    try:
        import fcntl
    except ImportError:  # no such lock on this system
        yield True
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)
