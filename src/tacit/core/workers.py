"""A crew: threads that share the processor's cores, one each, for work on different clients.

Threads of numerics libraries wait for each other by spinning, many times in every layer; beside a busy neighbour
that costs tenfold. A crew's threads meet once per pass, and each runs its part of the work alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

import torch

T = TypeVar("T")


class WorkerPool:
    """`size` workers; a crew of one is the calling thread itself."""

    def __init__(self, size: int) -> None:
        self.size = size

    @classmethod
    def of_this_process(cls, device: torch.device | str = "cpu") -> WorkerPool:
        """As many as torch may use threads here; one where a GPU does the work."""
        return cls(torch.get_num_threads() if torch.device(device).type == "cpu" else 1)

    def each(self, work: Callable[[T], None], pieces: Iterable[T]) -> None:
        """Do the work for all pieces, in no order; the first failure is raised when all have ended."""
        if self.size == 1:
            for piece in pieces:
                work(piece)
            return
        under_way: list[Future[None]] = []
        try:
            for piece in pieces:
                under_way.append(self._threads.submit(work, piece))
        finally:
            failures = [failure for done in under_way if (failure := done.exception()) is not None]
        if failures:
            raise failures[0]

    def cut(self, count: int, largest: int | None = None) -> list[slice]:
        """Ranges of `count` things, of at most `largest`, as many as keep all workers busy to the end."""
        passes = 1 if largest is None else -(-count // (self.size * max(1, largest)))
        pieces = min(count, self.size * passes)
        edges = [count * piece // max(1, pieces) for piece in range(pieces + 1)]
        return [slice(low, high) for low, high in pairwise(edges)]

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep the numerics library's own threads off the cores meanwhile: the calling thread has one."""
        if self.size == 1:
            yield
            return
        _ = self._threads
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        before = torch.get_num_threads()
        meeting = threading.Barrier(self.size)

        def begin() -> None:
            torch.get_num_threads()  # a thread that was never asked would take over everybody's number later
            torch.set_num_threads(1)  # of this thread; others keep theirs
            meeting.wait()

        pool = ThreadPoolExecutor(self.size, "tacit-crew", initializer=begin)
        for started in [pool.submit(lambda: None) for _ in range(self.size)]:
            started.result()
        torch.set_num_threads(before)  # also what threads that begin later take over
        return pool


@contextmanager
def separate_products(device: torch.device | str) -> Iterator[None]:
    """Let each worker multiply on its own core: oneDNN's products would start threads of their own there."""
    if torch.device(device).type != "cpu":
        yield
        return
    _OneDNN.leave_out()
    try:
        yield
    finally:
        _OneDNN.let_in()


class _OneDNN:
    """Torch's switch for oneDNN, which is one for the whole process: off while anybody wants that."""

    lock = threading.Lock()
    wishes = 0
    before = True

    @classmethod
    def leave_out(cls) -> None:
        with cls.lock:
            if cls.wishes == 0:
                cls.before = (
                    torch._C._get_mkldnn_enabled()
                )  # the public switch would also reset its precision
                torch._C._set_mkldnn_enabled(False)
            cls.wishes += 1

    @classmethod
    def let_in(cls) -> None:
        with cls.lock:
            cls.wishes -= 1
            if cls.wishes == 0:
                torch._C._set_mkldnn_enabled(cls.before)
