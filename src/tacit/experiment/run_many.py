"""Make many runs, each into its own folder: one after the other, or several at once."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tacit.config.build import build
from tacit.config.loading import make_config
from tacit.config.sections import Config
from tacit.config.tasks import load_data
from tacit.core.errors import Interrupted, Misuse, TacitError, first_line
from tacit.core.storage import read_json, write_text
from tacit.data import Dataset
from tacit.experiment.callbacks import check_metrics
from tacit.experiment.folder import RunFolder
from tacit.experiment.run import ProgressListener, run
from tacit.experiment.signals import stop_requests

ERROR = "error.txt"
ListenerFor = Callable[[str, int], ProgressListener]


def no_listener(label: str, seed: int) -> ProgressListener:
    """Follow a run without doing anything."""
    return ProgressListener()


class LoadedData:
    """The datasets of configurations; those with the same [data] and clients share one."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._loaded: dict[tuple[str, str], Dataset] = {}

    def of(self, config: Config) -> Dataset | None:
        """The dataset of a configuration; None if its task makes its own data."""
        if config.task is not None:
            return None
        # A function may be called for each of so many clients.
        clients = config.graph.options.get("clients") if config.data.function else None
        key = config.data.model_dump_json(), repr(clients)
        if key not in self._loaded:
            self._loaded[key] = load_data(config.data, self.folder, clients)
        return self._loaded[key]

    def check(self, config: Config) -> list[str]:
        """Build what a configuration describes; return the columns that its records will have.

        Raises:
            Misuse: If that is not possible.
        """
        return check_metrics(config, build(config, self.folder, self.of(config)))


@dataclass(frozen=True, eq=False)
class PlannedRun(ABC):
    """A run with its seed, and the folder that it goes into."""

    label: str
    seed: int
    folder: RunFolder

    @property
    def name(self) -> str:
        return f"{self.label}, seed {self.seed}"

    def finished(self) -> dict[str, Any] | None:
        """The summary of a run that has ended before."""
        return None

    @abstractmethod
    def start(self, listener: ProgressListener) -> dict[str, Any]:
        """Run it into its folder; return its summary."""


@dataclass(frozen=True, eq=False)
class ConfiguredRun(PlannedRun):
    """A run of a configuration, which other processes can run, too."""

    config: Config
    data: LoadedData
    resume: bool

    def finished(self) -> dict[str, Any] | None:
        """The summary of a run that has ended; one that diverged before its end has not."""
        summary = read_json(self.folder.summary) if self.folder.summary.exists() else {}
        ended = "stopped" in summary or summary.get("rounds") == self.config.run.rounds
        return summary if ended else None

    def start(self, listener: ProgressListener) -> dict[str, Any]:
        dataset, folder = self.data.of(self.config), self.folder.path
        made = run(self.config, folder, dataset=dataset, resume=self.resume, listener=listener)
        return made.summary

    def request(self) -> dict[str, Any]:
        """Plain values from which another process makes the same run."""
        return {
            "label": self.label,
            "config": self.config.as_dict(),
            "folder": str(self.folder.path),
            "resume": self.resume,
        }

    @classmethod
    def from_request(cls, request: dict[str, Any], data: LoadedData) -> ConfiguredRun:
        config, folder = make_config(request["config"]), RunFolder(Path(request["folder"]))
        return cls(request["label"], config.run.seed, folder, config, data, request["resume"])


@dataclass(frozen=True)
class Outcome:
    """How a run ended: with a summary, or with a failure in words; or it waits for its turn."""

    summary: dict[str, Any] | None = None
    failure: str | None = None


def run_many(
    plan: Sequence[PlannedRun], *, jobs: int = 1, listener_for: ListenerFor = no_listener
) -> list[Outcome]:
    """Run everything that has not ended yet; one that fails does not stop the others.

    Args:
        plan: The runs, in their order.
        jobs: How many run at the same time, each in a process with its part of the threads. More
            than one is for runs of configurations.
        listener_for: Makes the listener of a run from its label and seed.

    Raises:
        Interrupted: By Ctrl-C or SIGTERM; runs in progress have saved their state.
    """
    if jobs < 1:
        raise Misuse(f"--jobs is {jobs}.", "Give at least 1.")
    outcomes = {number: Outcome(planned.finished()) for number, planned in enumerate(plan)}
    waiting = {number: plan[number] for number in outcomes if outcomes[number].summary is None}
    for planned in waiting.values():
        # Of an earlier attempt.
        (planned.folder.path / ERROR).unlink(missing_ok=True)
    configured = {
        k: planned for k, planned in waiting.items() if isinstance(planned, ConfiguredRun)
    }
    if jobs > 1 and len(configured) > 1:
        outcomes |= _Workers(configured, min(jobs, len(configured)), listener_for).run()
    else:
        for number, planned in waiting.items():
            try:
                listener = listener_for(planned.label, planned.seed)
                outcomes[number] = run_one(planned, listener)
            except Interrupted:
                raise Interrupted(_stopped(planned.name)) from None
    return [outcomes[number] for number in range(len(plan))]


def run_one(planned: PlannedRun, listener: ProgressListener) -> Outcome:
    """Run one of them; whatever is raised becomes its failure, except Interrupted."""
    try:
        return Outcome(planned.start(listener))
    except Interrupted:
        raise
    except TacitError as problem:
        return Outcome(failure=str(problem))
    except Exception as problem:  # a user's model or algorithm may raise anything
        return Outcome(failure=_unexpected(planned.folder, problem))


def _unexpected(folder: RunFolder, problem: Exception) -> str:
    """The failure of a run by an error that is not Tacit's; error.txt has its traceback."""
    lines = "".join(traceback.format_exception(problem))
    with suppress(OSError):
        folder.path.mkdir(parents=True, exist_ok=True)
        write_text(folder.path / ERROR, lines)
    text = f"{type(problem).__name__}: {first_line(problem)}"
    return f"{text} (traceback in {folder.path / ERROR})"


def _stopped(names: str) -> str:
    return f"Stopped in {names}. Continue with the same command and --resume."


class _Workers:
    """Processes that run the plan, each followed by a thread."""

    def __init__(
        self,
        plan: Mapping[int, ConfiguredRun],
        jobs: int,
        listener_for: ListenerFor,
    ) -> None:
        self.plan, self.listener_for = plan, listener_for
        self.waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in plan:
            self.waiting.put(number)
        data = next(iter(plan.values())).data.folder
        self.outcomes: dict[int, Outcome] = {}
        self.interrupted: list[str] = []
        threads = str(max(1, torch.get_num_threads() // jobs))
        # In a session of their own: a Ctrl-C of the terminal must not reach them twice.
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-m", "tacit.experiment.worker", *([str(data)] if data else [])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
                start_new_session=True,
            )
            for _ in range(jobs)
        ]

    def run(self) -> dict[int, Outcome]:
        """Run everything; a stop request reaches the runs, which save their state."""
        threads = [
            threading.Thread(target=self._follow, args=[process], daemon=True)
            for process in self.processes
        ]
        try:
            with stop_requests(second_kills=True) as requested:
                for thread in threads:
                    thread.start()
                told = False
                while any(thread.is_alive() for thread in threads):
                    if requested.wait(0.1) and not told:
                        told = True
                        self._clear()
                        for process in self.processes:
                            process.send_signal(signal.SIGINT)
                    for thread in threads:
                        thread.join(0.05)
        finally:
            for process in self.processes:
                process.kill()
                process.wait()
        if requested.is_set():
            names = "; ".join(self.interrupted) or "the middle"
            raise Interrupted(_stopped(names))
        lost = Outcome(failure="No process was left to run this: continue with --resume.")
        return dict.fromkeys(self.plan, lost) | self.outcomes

    def _clear(self) -> None:
        with suppress(queue.Empty):
            while True:
                self.waiting.get_nowait()

    def _follow(self, process: subprocess.Popen[str]) -> None:
        """Give a process one run after the other, until none is left or the process ends."""
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(queue.Empty, BrokenPipeError):
            while process.poll() is None:
                number = self.waiting.get_nowait()
                planned = self.plan[number]
                process.stdin.write(json.dumps(planned.request()) + "\n")
                process.stdin.flush()
                outcome = self._wait_for(planned, process)
                if outcome is None:
                    self.interrupted.append(planned.name)
                    return
                self.outcomes[number] = outcome

    def _wait_for(self, planned: ConfiguredRun, process: subprocess.Popen[str]) -> Outcome | None:
        """Follow a run to its end; None if it was interrupted."""
        listener = self.listener_for(planned.label, planned.seed)
        assert process.stdout is not None
        for line in process.stdout:
            message = json.loads(line)
            match message.pop("kind"):
                case "ended":
                    return Outcome(**message)
                case "interrupted":
                    return None
                case _:
                    listener.on_report(message)
        code = process.wait()
        if code == -signal.SIGINT:
            return None
        return Outcome(failure=f"The process of this run ended with code {code}.")
