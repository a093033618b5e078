"""A process that runs configurations for `run_many`: JSON lines in, JSON lines out.

The parent's death closes the input, which stops the run in progress and saves its state.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from tacit.core.errors import Interrupted
from tacit.experiment.run import ProgressListener
from tacit.experiment.run_many import ConfiguredRun, LoadedData, run_one

SECONDS_BETWEEN_REPORTS = 0.2


class _Worker:
    def __init__(self, output: IO[str], data: LoadedData) -> None:
        self.output, self.data = output, data

    def send(self, kind: str, **values: Any) -> None:
        with suppress(BrokenPipeError):
            print(json.dumps({"kind": kind} | values), file=self.output, flush=True)

    def listener(self) -> ProgressListener:
        last = 0.0

        def report(values: dict[str, Any]) -> None:
            nonlocal last
            if "steps" in values or time.monotonic() - last > SECONDS_BETWEEN_REPORTS:
                last = time.monotonic()
                self.send("report", **values)

        return ProgressListener.of_reports(report)

    def run(self, request: dict[str, Any]) -> bool:
        """Run a configuration; return whether to go on with others."""
        try:
            planned = ConfiguredRun.from_request(request, self.data)
            self.send("ended", **asdict(run_one(planned, self.listener())))
        except (Interrupted, KeyboardInterrupt):
            self.send("interrupted")
            return False
        return True


def main() -> None:
    """Run what arrives until the input ends."""
    # What a user's code prints must not mix with the messages.
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    requests: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            requests.put(line)
        requests.put(None)
        # If a run is in progress, its parent has died.
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=read, daemon=True).start()
    data_folder = Path(sys.argv[1]) if sys.argv[1:] else None
    worker = _Worker(output, LoadedData(data_folder))
    with suppress(KeyboardInterrupt):
        while (line := requests.get()) is not None and worker.run(json.loads(line)):
            pass
    # At once: the thread that reads still waits for its input.
    output.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
