"""Threads that take turns outside of compiled loops.

A pass through a model is many short operations of torch between a few long loops. Torch gives up
Python's lock in each of them, so that two threads in step would wake each other many times in every
pass, which takes longer than the operations themselves. With turns, one thread at a time does what
is between the loops, while the others are in theirs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Turns:
    """Of the threads that take turns, one at a time is outside of `paused`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """The context of what one thread does at a time."""
        with self._lock:
            token = _current.set(self)
            try:
                yield
            finally:
                _current.reset(token)

    @contextmanager
    def _paused(self) -> Iterator[None]:
        self._lock.release()
        try:
            yield
        finally:
            self._lock.acquire()


# The turns that this thread takes part in.
_current: ContextVar[Turns | None] = ContextVar("current turns", default=None)


@contextmanager
def paused() -> Iterator[None]:
    """The context of long work without Python's lock: meanwhile another thread has its turn."""
    turns = _current.get()
    if turns is None:
        yield
    else:
        with turns._paused():
            yield
