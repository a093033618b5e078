"""An event loop in a thread of its own, for programs that are made of threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tacit.peer.monitoring.event_log import EventLog

T = TypeVar("T")
ErrorHandler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]


class LoopThread:
    """Runs coroutines until it is closed.

    Args:
        name: Name of the thread.
        on_error: Handles errors that no coroutine gets; see `log_errors`.
    """

    def __init__(self, name: str, on_error: ErrorHandler | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(on_error or _ignore)
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        """Wait for the result of a coroutine."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine, without waiting."""
        asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Cancel what runs, and end the thread."""
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def log_errors(event_log: EventLog) -> ErrorHandler:
    """Write errors to a log; asyncio would write them to standard error, but not as JSON."""

    def log(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        why = f"{context.get('message')}: {context.get('exception')!r}"
        event_log.write_throttled(30, "event loop", "internal error", "warning", why=why)

    return log


def _ignore(_: asyncio.AbstractEventLoop, __: dict[str, Any]) -> None:
    """The attempt has failed, which its caller notices."""


async def _cancel_others() -> None:
    # Twice: a connection that was accepted before has its task only now.
    for _ in range(2):
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)
