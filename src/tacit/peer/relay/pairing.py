"""Which waiting connections a relay has, and who gets the next one."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

MAX_WAITING = 8  # connections of one member; older ones are closed
MAX_REQUESTS = 32  # of one caller that have no connection yet

W = TypeVar("W")


class Pairing(Generic[W]):
    """Waiting connections by member, and requests for them; used by one event loop.

    Args:
        discard: Called with a connection that is too old to keep.
    """

    def __init__(self, discard: Callable[[W], None] = lambda waiting: None) -> None:
        self._discard = discard
        self._waiting: dict[str, deque[W]] = {}
        self._requests: dict[str, deque[asyncio.Future[W]]] = {}
        self._callers: Counter[str] = Counter()

    def count(self) -> int:
        """How many connections wait."""
        return sum(map(len, self._waiting.values()))

    def names(self) -> list[str]:
        """The members that wait."""
        return sorted(self._waiting)

    def add(self, member: str, waiting: W) -> None:
        """Keep a connection of a member, or hand it to the oldest request."""
        requests = self._requests.get(member, ())
        while requests:
            request = requests.popleft()
            if not request.done():
                request.set_result(waiting)
                return
        kept = self._waiting.setdefault(member, deque())
        kept.append(waiting)
        if len(kept) > MAX_WAITING:
            self._discard(kept.popleft())

    def remove(self, member: str, waiting: W) -> None:
        """Forget a connection, if it waits."""
        kept = self._waiting.get(member, deque())
        with suppress(ValueError):
            kept.remove(waiting)
        if not kept:
            self._waiting.pop(member, None)

    def may_request(self, caller: str) -> bool:
        """Whether a caller has few enough requests to make another."""
        return self._callers[caller] < MAX_REQUESTS

    async def take(self, caller: str, member: str, seconds: float) -> W | None:
        """The newest waiting connection of a member, once there is one; None after some seconds."""
        kept = self._waiting.get(member)
        if kept:
            newest = kept.pop()
            self.remove(member, newest)  # forgets a member without connections
            return newest
        request: asyncio.Future[W] = asyncio.get_running_loop().create_future()
        self._requests.setdefault(member, deque()).append(request)
        self._callers[caller] += 1
        try:
            async with asyncio.timeout(seconds):
                return await request
        except (TimeoutError, asyncio.CancelledError) as ended:
            got = request.result() if request.done() and not request.cancelled() else None
            if isinstance(ended, TimeoutError):
                return got
            if got is not None:
                self._discard(got)
            raise
        finally:
            self._forget(caller, member, request)

    def _forget(self, caller: str, member: str, request: asyncio.Future[W]) -> None:
        self._callers -= Counter({caller: 1})
        requests = self._requests.get(member, deque())
        with suppress(ValueError):
            requests.remove(request)
        if not requests:
            self._requests.pop(member, None)
