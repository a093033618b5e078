"""Threads that share the cores, one each, to work on different clients.

Threads of numerics libraries wait for each other by spinning, many times in every layer; next to a
busy process that costs tenfold. The threads of a pool synchronize once per pass, and each does its
part of the work alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, TypeVar

import torch

T = TypeVar("T")


class WorkerPool:
    """A pool of `size` threads; a pool of one is the calling thread."""

    def __init__(self, size: int) -> None:
        self.size = size

    @classmethod
    def for_device(cls, device: torch.device | str = "cpu") -> WorkerPool:
        """One worker per torch thread on a CPU; one where a GPU does the work."""
        return cls(torch.get_num_threads() if torch.device(device).type == "cpu" else 1)

    def run(self, work: Callable[[T], None], pieces: Iterable[T]) -> None:
        """Do the work for all pieces in any order; raise the first error when all have ended."""
        if self.size == 1:
            for piece in pieces:
                work(piece)
            return
        futures: list[Future[None]] = []
        try:
            for piece in pieces:
                futures.append(self._threads.submit(work, piece))
        finally:
            errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]

    def run_with_caller(self, work: Callable[[T], None], pieces: Sequence[T]) -> None:
        """Do the work as `run` does, the last piece in the calling thread.

        For short work, where waking a thread counts, that does not use torch's threads.
        """
        futures = [self._threads.submit(work, piece) for piece in pieces[:-1]]
        try:
            for piece in pieces[-1:]:
                work(piece)
        finally:
            errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]

    def run_evenly(self, work: Callable[[T], None], pieces: Iterable[T]) -> None:
        """Do the work as `run` does, but leave no thread idle at the end.

        A remainder of fewer pieces than threads is done one piece after the other in the calling
        thread, each with as many threads of the numerics library. For pieces of much work each.
        """
        everything = list(pieces)
        whole = len(everything) - len(everything) % self.size
        self.run(work, everything[:whole])
        with torch_threads(self.size) if self.size > 1 else nullcontext():
            for piece in everything[whole:]:
                work(piece)

    def split(self, count: int, largest: int | None = None) -> list[slice]:
        """Split `count` items into equal ranges of at most `largest` that keep all workers busy."""
        passes = 1 if largest is None else -(-count // (self.size * max(1, largest)))
        pieces = min(count, self.size * passes)
        edges = [count * piece // max(1, pieces) for piece in range(pieces + 1)]
        return [slice(low, high) for low, high in pairwise(edges)]

    def exclusive(self) -> AbstractContextManager[None]:
        """Restrict the numerics library to one thread, so that the pool has the other cores."""
        if self.size == 1:
            return nullcontext()
        _ = self._threads
        return self._alone()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        token = _current.set(self)
        try:
            with torch_threads(1):
                yield
        finally:
            _current.reset(token)

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        before = torch.get_num_threads()
        started = threading.Barrier(self.size)

        def begin() -> None:
            # A thread that never reads its number would take over the global one later.
            torch.get_num_threads()
            # Of this thread; others keep theirs.
            torch.set_num_threads(1)
            started.wait()

        pool = ThreadPoolExecutor(self.size, "tacit-worker", initializer=begin)
        for future in [pool.submit(lambda: None) for _ in range(self.size)]:
            future.result()
        # This is also the number of threads that begin later.
        torch.set_num_threads(before)
        return pool


# The pool of the enclosing `exclusive` block; a pool's own threads have none.
_current: ContextVar[WorkerPool | None] = ContextVar("current pool", default=None)


def current_pool() -> WorkerPool:
    """The pool of the enclosing `exclusive` block, or else one with as many threads as torch."""
    return _current.get() or _pool_of(torch.get_num_threads())


@cache
def _pool_of(size: int) -> WorkerPool:
    return WorkerPool(size)


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Set the number of torch's threads within a block."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def without_onednn(device: torch.device | str) -> Iterator[None]:
    """Switch oneDNN off on a CPU: its products would start more threads inside each worker."""
    if torch.device(device).type != "cpu":
        yield
        return
    with _OneDNN.lock:
        if _OneDNN.users == 0:
            # `torch.backends.mkldnn.flags` would also reset oneDNN's precision.
            _OneDNN.before = _OneDNN.switch.enabled
            _OneDNN.switch.enabled = False
        _OneDNN.users += 1
    try:
        yield
    finally:
        with _OneDNN.lock:
            _OneDNN.users -= 1
            if _OneDNN.users == 0:
                _OneDNN.switch.enabled = _OneDNN.before


class _OneDNN:
    """Torch's switch for oneDNN, one for the whole process: off while anyone needs that."""

    switch: Any = torch.backends.mkldnn
    lock = threading.Lock()
    users = 0
    before = True
