"""Ctrl-C and SIGTERM as requests to stop after the current iteration."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tacit.core.errors import RankLost


@contextmanager
def stop_requests(second_kills: bool) -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C or SIGTERM sets; in other threads nothing sets it.

    If `second_kills`, a second signal has its usual effect. Ranks receive each Ctrl-C twice, from
    the terminal and from torchrun, so they must ignore further signals.
    """
    requested = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield requested
        return
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, frame: object) -> None:
        requested.set()
        if second_kills:
            signal.signal(number, previous[signal.Signals(number)])

    for number in previous:
        signal.signal(number, handle)
    try:
        yield requested
    except RankLost:
        # When a rank dies, torchrun terminates the others; they report the loss before they end.
        previous[signal.SIGTERM] = signal.SIG_IGN
        raise
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
