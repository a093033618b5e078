"""Threads that take turns: one at a time outside of loops, all of them inside."""

from __future__ import annotations

import threading
import time

import pytest

from tacit.core.turns import Turns, paused
from tacit.core.workers import WorkerPool


def test_one_thread_at_a_time_has_its_turn():
    turns, inside, most = Turns(), 0, 0

    def work(_: int) -> None:
        nonlocal inside, most
        for _ in range(20):
            with turns.taken():
                inside += 1
                most = max(most, inside)
                # Any other thread that may be here comes now.
                time.sleep(0.0005)
                most = max(most, inside)
                inside -= 1
                with paused():
                    pass

    WorkerPool(4).run(work, range(4))
    assert most == 1


def test_paused_threads_work_at_the_same_time():
    turns, meeting = Turns(), threading.Barrier(2, timeout=30)

    def work(_: int) -> None:
        with turns.taken(), paused():
            # Passed only if both threads are here together.
            meeting.wait()

    WorkerPool(2).run(work, range(2))
    assert not meeting.broken


def test_errors_end_a_turn():
    turns = Turns()
    with pytest.raises(RuntimeError, match="in a loop"), turns.taken(), paused():
        raise RuntimeError("in a loop")
    with turns.taken():
        pass


def test_without_turns_nothing_waits():
    with paused(), paused():
        pass
