"""Worker processes that measure cells of the same artifact alongside this one."""

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

import torch

from tacit.core.errors import Misuse
from tacit.core.provenance import available_cores
from tacit.core.storage import locks_supported

STOP_SECONDS = 20.0  # for a worker to save its progress before it is killed
REPORT_SECONDS = 30.0  # between two lines about workers that are still measuring


@contextmanager
def worker_processes(
    command: Sequence[str], count: int, folder: Path, report: Callable[[str], None]
) -> Iterator[None]:
    """Run `command` in `count` processes that share the cores, and wait for them at the end."""
    if count == 0:
        yield
        return
    if not locks_supported():
        raise Misuse(
            "--jobs needs file locks, which this system does not support.", "Leave it out."
        )
    threads = max(1, available_cores() // (count + 1))
    torch.set_num_threads(threads)
    folder.mkdir(parents=True, exist_ok=True)
    running: list[tuple[Path, subprocess.Popen[bytes]]] = []
    with ExitStack() as logs, _signals_interrupt():
        try:
            for number in range(1, count + 1):
                path = folder / f"job-{number}.log"
                process = subprocess.Popen(
                    [sys.executable, "-m", *command],
                    env={**os.environ, "OMP_NUM_THREADS": str(threads)},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=logs.enter_context(path.open("wb")),
                )
                running.append((path, process))
            yield
            _wait([process for _, process in running], report)
        except BaseException:
            for _, process in running:
                process.terminate()
            for _, process in running:
                _stop(process)
            raise
    for path, process in running:
        if process.returncode:
            report(
                f"A process of --jobs stopped with exit status {process.returncode}; see {path}."
            )
        else:
            path.unlink(missing_ok=True)


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP as Ctrl-C, so that the workers are stopped too."""
    numbers = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP)
        if threading.current_thread() is threading.main_thread()
        and signal.getsignal(number) is signal.SIG_DFL
    ]
    for number in numbers:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _wait(processes: Sequence[subprocess.Popen[bytes]], report: Callable[[str], None]) -> None:
    reported = time.monotonic()
    while busy := sum(process.poll() is None for process in processes):
        if time.monotonic() - reported > REPORT_SECONDS:
            report(f"{busy} still measuring")
            reported = time.monotonic()
        time.sleep(0.1)


def _stop(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
