"""Running a configuration into a folder: history as it goes, checkpoints, summary and report at the end."""

from __future__ import annotations

import shlex
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tacit
from tacit.config.build import Experiment, build
from tacit.config.sections import Config, with_keys
from tacit.core.errors import Diverged, Interrupted, Lost, Misuse, ReportedElsewhere, TacitError
from tacit.core.storage import append_text, write_json, write_text
from tacit.data import Dataset
from tacit.engines import checkpoints
from tacit.engines.group import Hosted, ProcessGroup, SingleProcess
from tacit.engines.observation import MAX_EVALUATED_CLIENTS
from tacit.experiment.folder import RunFolder, fingerprint
from tacit.record import transcript_files
from tacit.record.checkpoint import Checkpoint
from tacit.record.history import History, Record
from tacit.record.transcript import Keep, Transcript
from tacit.simulation import Simulation


@dataclass(frozen=True)
class ProgressListener:
    """What wants to know how a run goes on; the command line draws its bars with this."""

    began: Callable[[Experiment, Simulation], None] = lambda experiment, simulation: None
    stepped: Callable[[Simulation], None] = lambda simulation: None
    recorded: Callable[[Record], None] = lambda record: None


@dataclass(frozen=True, eq=False)
class RunResult:
    """What a finished run left in memory and on disk."""

    folder: RunFolder
    summary: dict[str, Any]
    history: History
    simulation: Simulation


def run(
    config: Config,
    out: Path,
    *,
    data_folder: Path | None = None,
    dataset: Dataset | None = None,
    resume: bool = False,
    watcher: ProgressListener | None = None,
    group: ProcessGroup | None = None,
) -> RunResult:
    """Run a configuration into the folder `out`, or continue the run that is there with `resume`.

    All processes of a `group` run it together; the first of them has the folder and the watcher.
    """
    watcher, group = watcher or ProgressListener(), group or SingleProcess()
    folder = RunFolder(out)
    resume = resume or group.tell(lambda: group.again)
    experiment = _built(config, folder, data_folder, dataset, resume, group)
    simulation, history = _prepare(experiment, folder, resume, group)
    watcher.began(experiment, simulation)
    try:
        with _stop_signals(insist=group.ranks == 1) as stopped:
            if simulation.state is None:
                simulation.start()
            _advance(experiment, simulation, folder, history, watcher, stopped)
    except Interrupted as stop:
        _leave_to_first(group, stop)
        raise Interrupted(f"{stop}{_continuation(folder, data_folder, group)}") from None
    except Diverged as problem:
        _leave_to_first(group, problem)
        simulation.diverged = simulation.diverged or str(problem)
        write_json(folder.summary, summarize(experiment, simulation, history))
        raise Diverged(
            f"{problem} What was recorded until then is in {folder.history}.", history
        ) from None
    except Lost as problem:
        raise Lost(
            f"Rank {group.rank}: {problem}{_continuation(folder, data_folder, group)}"
        ) from None
    summary = summarize(experiment, simulation, history)
    if group.rank == 0:
        write_json(folder.summary, summary)
    return RunResult(folder, summary, history, simulation)


def _built(
    config: Config,
    folder: RunFolder,
    data_folder: Path | None,
    dataset: Dataset | None,
    resume: bool,
    group: ProcessGroup,
) -> Experiment:
    """Everything a run needs; what is wrong with it or with the folder shows before anything is written."""
    built: list[Experiment] = []

    def first() -> None:
        if not resume:
            folder.refuse_if_taken()
        elif folder.config.exists() and fingerprint(folder.read_config()) != fingerprint(config):
            raise Misuse(
                f"The run in {folder.path} has another configuration.",
                f"Resume it with its own:\n  {resume_command(folder, data_folder)}",
            )
        if config.transcript is not None and group.ranks > 1:
            raise Misuse(
                f"[transcript] is of all messages, and these are spread over {group.ranks} ranks.",
                "Record it without torchrun, or remove the section.",
            )
        built.append(build(config, data_folder, dataset))

    group.tell(first)  # the others after it: it may be downloading data
    return built[0] if built else build(config, data_folder, dataset)


def _leave_to_first(group: ProcessGroup, problem: TacitError) -> None:
    """What all processes have come to together, the first one tells."""
    if group.rank != 0:
        raise ReportedElsewhere(problem.exit_code) from None


def resume_command(folder: RunFolder, data_folder: Path | None) -> str:
    """What to type to go on with the run in a folder."""
    words = ["tacit", "run", folder.config, "--out", folder.path, "--resume"]
    return shlex.join(map(str, words if data_folder is None else [*words, "--data", data_folder]))


def _continuation(folder: RunFolder, data_folder: Path | None, group: ProcessGroup) -> str:
    """How to go on, for the end of a message; with any number of processes, so also with as many as now."""
    start = "" if group.ranks == 1 else f"torchrun --nproc-per-node {group.ranks} -m "
    return f" Continue with\n  {start}{resume_command(folder, data_folder)}"


def _prepare(
    experiment: Experiment, folder: RunFolder, resume: bool, group: ProcessGroup
) -> tuple[Simulation, History]:
    config = experiment.config
    hosted = Hosted.of(group, experiment.graph)
    saved = None
    if resume:
        saved = checkpoints.load_latest(
            folder.checkpoints, experiment.algorithm, fingerprint(config), group.device(config.run.device), hosted
        )  # fmt: skip
    transcript = _transcript(experiment, folder, saved)
    simulation = experiment.simulation(
        transcript, gradients=saved.gradients if saved else None, hosted=hosted
    )
    earlier = group.tell(lambda: _open(experiment, folder, simulation, saved))
    if saved is not None:
        simulation.restore(
            saved.state, saved.step, saved.bytes_sent, saved.wall_seconds, saved.diverged
        )
    return simulation, History.from_jsonl(earlier)


def _open(
    experiment: Experiment, folder: RunFolder, simulation: Simulation, saved: Checkpoint | None
) -> str:
    """Write what is known before the first iteration; the history until then."""
    if not folder.config.exists():
        # With the way gradients were taken, so that this file runs again to the same bits.
        folder.create(with_keys(experiment.config, "run", gradients=simulation.gradients.strategy))
    dataset, partition = experiment.dataset, experiment.partition
    folder.write_graph(experiment.graph)
    if dataset is not None and partition is not None:
        folder.write_partition(
            partition.counts(dataset.train.y.numpy(), dataset.classes).tolist(),
            list(dataset.class_names),
            f"{dataset.note}: {partition.description}",
        )
    history = History()
    if saved is not None:
        history = History(record for record in folder.read_history() if record.step <= saved.step)
    write_text(folder.history, history.to_jsonl())
    if saved is None or saved.step < experiment.steps:
        folder.summary.unlink(missing_ok=True)  # of a run that diverged: this one has not ended
    return history.to_jsonl()


def _transcript(
    experiment: Experiment, folder: RunFolder, saved: Checkpoint | None
) -> Transcript | None:
    """What is to be recorded: from the start, or going on after what a run that was stopped had heard."""
    section = experiment.config.transcript
    if section is None:
        return None
    keep = Keep(
        None if section.clients is None else tuple(section.clients),
        (section.first, section.last),
        None if section.tags is None else tuple(section.tags),
        tuple(section.insides),
        section.theta0,
    )
    if saved is None:
        return Transcript(keep)
    heard, _ = transcript_files.load(folder.path)
    heard.messages = [message for message in heard.messages if message.tick <= saved.step]
    return heard


def _advance(
    experiment: Experiment,
    simulation: Simulation,
    folder: RunFolder,
    history: History,
    watcher: ProgressListener,
    stopped: threading.Event,
) -> None:
    """Step to the end, looking and saving as often as asked."""
    plan, group = experiment.config.run, simulation.hosted.group
    look_every = plan.evaluate_every * experiment.round_length
    save_every = plan.checkpoint_every * experiment.round_length
    kept = simulation.t  # the iteration that a checkpoint is of; 0: none yet

    def save() -> None:
        nonlocal kept
        simulation.check()  # a state that is not finite must not push out one that is
        mark = fingerprint(experiment.config)
        state = Checkpoint(
            simulation.state, simulation.t, simulation.net.bytes_sent, simulation.wall_seconds, mark,
            simulation.diverged, simulation.gradients.strategy,
        )  # fmt: skip
        if simulation.recorder is not None:
            # First: a run that is killed in between goes on from an iteration before what was heard, not after.
            transcript_files.save(simulation.recorder.transcript, folder.path, mark)
        checkpoints.save(folder.checkpoints, state, simulation.hosted, plan.keep_checkpoints)
        kept = simulation.t

    def look() -> None:
        if history and history[-1].step == simulation.t:
            return
        record = simulation.observe()
        history.records.append(record)
        if group.rank == 0:
            append_text(folder.history, History([record]).to_jsonl())
        watcher.recorded(record)

    try:
        if simulation.t % look_every == 0:  # a resumed run goes on wherever it was stopped
            look()
        while simulation.t < experiment.steps:
            simulation.step()
            watcher.stepped(simulation)
            last = simulation.t == experiment.steps
            if last or simulation.t % look_every == 0:
                look()
            # Asked once: a wish that comes while we save waits for the next iteration.
            stop = group.any(stopped.is_set())
            if last or stop or simulation.t % save_every == 0:
                save()
            if stop and not last:
                raise Interrupted(
                    f"Stopped after iteration {simulation.t} of {experiment.steps}; the state is saved."
                )
    except Lost as problem:
        saved = f"The state after iteration {kept} is saved." if kept else "Nothing was saved yet."
        raise Lost(
            f"{problem} The run stopped after iteration {simulation.t} of {experiment.steps}. {saved}"
        ) from None


def summarize(experiment: Experiment, simulation: Simulation, history: History) -> dict[str, Any]:
    """The outcome of a run as plain values."""
    last = history[-1].as_dict() if history else {}
    notes = [f"gradients {simulation.gradients.strategy}: {simulation.gradients.reason}"]
    notes += [] if experiment.dataset is None else [experiment.dataset.note]
    notes += simulation.remarks + simulation.cautions
    if simulation.hosted.group.ranks > 1:
        notes.append(simulation.hosted.division.describe())
    if experiment.graph.clients > MAX_EVALUATED_CLIENTS:
        notes.append(
            f"accuracy and loss over {MAX_EVALUATED_CLIENTS} evenly spaced clients of {experiment.graph.clients}"
        )
    summary = {
        "algorithm": experiment.algorithm.name,
        "steps": simulation.t,
        "rounds": simulation.t // experiment.round_length,
        "clients": experiment.graph.clients,
        "parameters": experiment.task.parameters,
        **{key: last.get(key) for key in ("accuracy", "loss", "consensus_distance", "bytes_sent")},
        "wall_seconds": simulation.wall_seconds,
        "seed": experiment.config.run.seed,
        "msd": last.get("msd"),
        "device": experiment.config.run.device,
        "notes": notes,
        "version": tacit.__version__,
    }
    return summary | ({"diverged": simulation.diverged} if simulation.diverged else {})


@contextmanager
def _stop_signals(insist: bool) -> Iterator[threading.Event]:
    """Turn the first Ctrl-C or SIGTERM into a wish to stop after the current iteration; the second one kills.

    Unless one may not `insist`: a rank hears of Ctrl-C twice, from the terminal and from torchrun.
    """
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def wish(number: int, frame: object) -> None:
        stopped.set()
        if insist:
            signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, wish)
    try:
        yield stopped
    except Lost:
        before[signal.SIGTERM] = (
            signal.SIG_IGN
        )  # torchrun ends all when one has died; we say it first
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
