"""Processes that measure cells of the same artifact beside this one: each claims what nobody else has begun."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import torch

from tacit.bench.machine import cores
from tacit.core.errors import Misuse
from tacit.core.storage import locks_supported

PATIENCE = 20.0  # seconds for a companion to keep what it has, when all are to stop
QUIET = 30.0  # seconds between two lines about those that are still measuring


@contextmanager
def workers(
    command: Sequence[str], count: int, folder: Path, say: Callable[[str], None]
) -> Iterator[None]:
    """So many processes that run `command`; waited for at the end. Cores are shared out evenly."""
    if count == 0:
        yield
        return
    if not locks_supported():
        raise Misuse(
            "--jobs needs locks between processes, which this system has not.", "Leave it out."
        )
    threads = max(1, cores() // (count + 1))
    torch.set_num_threads(threads)
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as files, _ends_as_by_ctrl_c():
        running: list[tuple[Path, subprocess.Popen[bytes]]] = []
        try:
            for number in range(1, count + 1):
                log = folder / f"job-{number}.log"
                running.append((log, _start(command, threads, files.enter_context(log.open("wb")))))
            yield
            _wait([process for _, process in running], say)
        except BaseException:
            for _, process in running:
                process.terminate()
            for _, process in running:
                _end(process)
            raise
    for log, process in running:
        if process.returncode:
            say(
                f"A process of --jobs stopped with exit status {process.returncode}; its words are in {log}."
            )
        else:
            log.unlink(missing_ok=True)


@contextmanager
def _ends_as_by_ctrl_c() -> Iterator[None]:
    """What would end this process at once ends it as Ctrl-C does: its companions must not be left behind."""
    here = threading.current_thread() is threading.main_thread()
    ending = [
        n for n in (signal.SIGTERM, signal.SIGHUP) if here and signal.getsignal(n) is signal.SIG_DFL
    ]
    for number in ending:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in ending:
            signal.signal(number, signal.SIG_DFL)


def _start(command: Sequence[str], threads: int, log: IO[bytes]) -> subprocess.Popen[bytes]:
    surroundings = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    return subprocess.Popen(
        [sys.executable, "-m", *command],
        env=surroundings,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=log,
    )


def _wait(processes: Sequence[subprocess.Popen[bytes]], say: Callable[[str], None]) -> None:
    told = time.monotonic()
    while busy := sum(process.poll() is None for process in processes):
        if time.monotonic() - told > QUIET:
            say(f"{busy} still measuring")
            told = time.monotonic()
        time.sleep(0.1)


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
