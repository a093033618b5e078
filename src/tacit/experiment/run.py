"""Run a configuration into a folder: history, checkpoints, and a summary at the end."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tacit.config.build import Experiment, build
from tacit.config.loading import with_keys
from tacit.config.sections import EARLIER_GRADIENTS, Config
from tacit.core.errors import Diverged, Interrupted, Misuse, RankLost, ReportedElsewhere
from tacit.core.provenance import current_provenance
from tacit.core.storage import append_text, write_json, write_text
from tacit.data import Dataset
from tacit.engines import checkpoints
from tacit.engines.callbacks import BestCheckpoint, EarlyStopping
from tacit.engines.group import Hosted, ProcessGroup
from tacit.engines.observation import MAX_EVALUATED_CLIENTS
from tacit.engines.simulation import Simulation
from tacit.experiment.callbacks import check_metrics, make_callbacks
from tacit.experiment.folder import RunFolder
from tacit.experiment.noise_key import NoiseKey
from tacit.experiment.signals import stop_requests
from tacit.record import model_files, transcript_files
from tacit.record.callbacks import close, why_stop
from tacit.record.checkpoint import Checkpoint
from tacit.record.history import SCALARS, STANDARD, History, Record
from tacit.record.model_files import ModelLayout
from tacit.record.run_files import summary_of
from tacit.report.finished_run import PROVENANCE, StoredGraph, StoredPartition


@dataclass(frozen=True)
class ProgressListener:
    """Callbacks that follow a run; the command line draws its progress bars with them.

    Of a run in another process, `on_report` gets all there is to know, as plain values.
    """

    on_start: Callable[[Experiment, Simulation], None] = lambda experiment, simulation: None
    on_step: Callable[[Simulation], None] = lambda simulation: None
    on_record: Callable[[Record], None] = lambda record: None
    on_report: Callable[[dict[str, Any]], None] = lambda report: None

    @classmethod
    def of_reports(cls, on_report: Callable[[dict[str, Any]], None]) -> ProgressListener:
        """A listener that turns all there is to know into plain values."""
        text = ""

        def on_start(experiment: Experiment, simulation: Simulation) -> None:
            on_report(_start_report(experiment, simulation))

        def on_step(simulation: Simulation) -> None:
            # Some remarks appear after the first iterations.
            number, lines = simulation.t // simulation.round_length, simulation.remarks
            on_report({"t": simulation.t, "round": number, "lines": lines, "text": text})

        def on_record(record: Record) -> None:
            nonlocal text
            text = record.describe()
            on_report({"t": record.step, "round": record.round, "lines": [], "text": text})

        return cls(on_start, on_step, on_record, on_report)


def _start_report(experiment: Experiment, simulation: Simulation) -> dict[str, Any]:
    """What is known of a run when it starts, as plain values."""
    # What changes is among the remarks.
    lines = [experiment.graph.describe()] if experiment.schedule is None else []
    if (dataset := experiment.dataset) is not None and dataset.clients:
        lines.append(dataset.note)
    if simulation.hosted.group.ranks > 1:
        lines.append(simulation.hosted.partition.describe())
    lines += [*simulation.remarks, *(f"Caution: {caution}" for caution in simulation.cautions)]
    rounds, length = experiment.config.run.rounds, experiment.round_length
    return {
        "steps": experiment.steps,
        "rounds": rounds,
        "round_length": length,
        "t": simulation.t,
        "lines": lines,
    }


@dataclass(frozen=True, eq=False)
class RunResult:
    """A finished run: its folder, and what is in memory."""

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
    listener: ProgressListener | None = None,
    group: ProcessGroup | None = None,
) -> RunResult:
    """Run a configuration into a folder.

    Ctrl-C or SIGTERM stops the run after the current iteration and saves its state.

    Args:
        config: What to run.
        out: Folder for the results, new or empty.
        data_folder: Folder of the datasets.
        dataset: The configuration's dataset, if it is loaded already.
        resume: Continue the run in `out`, if there is one.
        listener: Callbacks; only rank 0 needs them.
        group: The processes that run this together, all with the same arguments. Rank 0 writes
            the files.

    Raises:
        Misuse: The configuration or the folder cannot be used; nothing was written.
        Diverged: A state became NaN or infinite, and the configuration does not allow that.
        Interrupted: A signal stopped the run.
        RankLost: Another process of the group died.
    """
    group, listener = group or ProcessGroup(), listener or ProgressListener()
    folder = RunFolder(out)
    # Processes that torchrun restarted continue where the earlier ones stopped.
    resume = resume or group.run_on_first(lambda: group.restarted)
    command = resume_command(folder, data_folder)
    experiments: list[Experiment] = []

    def build_first() -> None:
        if resume:
            folder.require_same_run(config, f"Resume it with its own:\n  {command}")
        else:
            folder.require_new(config, command)
        if config.transcript is not None and group.ranks > 1:
            raise Misuse(
                f"[transcript] records all messages, but {group.ranks} ranks share them.",
                "Record it without torchrun, or remove the section.",
            )
        make_callbacks(config, folder)
        experiments.append(build(config, data_folder, dataset))
        check_metrics(config, experiments[0])

    # The other ranks build when rank 0 has finished: it may have to download the data.
    group.run_on_first(build_first)
    experiment = experiments[0] if experiments else build(config, data_folder, dataset)
    active = _ActiveRun(experiment, folder, listener, group, resume)
    listener.on_start(experiment, active.simulation)
    launcher = "" if group.ranks == 1 else f"torchrun --nproc-per-node {group.ranks} -m "
    how_to_resume = f"Continue with\n  {launcher}{command}"
    try:
        with stop_requests(second_kills=group.ranks == 1) as stop_requested:
            try:
                active.advance(stop_requested)
            finally:
                close(active.callbacks)
    except (Interrupted, Diverged) as problem:
        if group.rank != 0:
            # All ranks have this error, and the first reports it.
            raise ReportedElsewhere(problem.exit_code) from None
        if isinstance(problem, Interrupted):
            raise Interrupted(f"{problem} {how_to_resume}") from None
        active.simulation.diverged = active.simulation.diverged or str(problem)
        write_json(folder.summary, active.summary())
        raise Diverged(
            f"{problem} What was recorded until then is in {folder.history}.", active.history
        ) from None
    except RankLost as problem:
        stopped = f"The run stopped after iteration {active.simulation.t} of {experiment.steps}."
        step = active.saved_step
        saved = f"The state after iteration {step} is saved." if step else "Nothing was saved yet."
        raise RankLost(f"Rank {group.rank}: {problem} {stopped} {saved} {how_to_resume}") from None
    summary = active.summary()
    if group.rank == 0:
        write_json(folder.summary, summary)
    return RunResult(folder, summary, active.history, active.simulation)


def resume_command(folder: RunFolder, data_folder: Path | None) -> str:
    words = ["tacit", "run", folder.config, "--out", folder.path, "--resume"]
    return shlex.join(map(str, words if data_folder is None else [*words, "--data", data_folder]))


class _ActiveRun:
    """An experiment that runs, records and saves; rank 0 of the group writes the files."""

    def __init__(
        self,
        experiment: Experiment,
        folder: RunFolder,
        listener: ProgressListener,
        group: ProcessGroup,
        resume: bool,
    ) -> None:
        self.experiment, self.folder = experiment, folder
        self.listener, self.group = listener, group
        self.fingerprint = folder.fingerprint_of(experiment.config)
        hosted = Hosted.of(group, experiment.graph)
        device = group.device(experiment.config.run.device)
        saved = None
        if resume:
            saved = checkpoints.load_latest(
                folder.checkpoints, experiment.algorithm, self.fingerprint, device, hosted
            )
        transcript = experiment.new_transcript()
        if transcript is not None and saved is not None:
            transcript, _ = transcript_files.load(folder.path)
            transcript.messages = [m for m in transcript.messages if m.tick <= saved.step]
        self.key: NoiseKey | None = None
        # Version 0.1 computed them in ways that there are no more; others round otherwise.
        is_earlier = saved is not None and saved.gradients in EARLIER_GRADIENTS
        secret, repeated = group.run_on_first(lambda: self._open_key(saved))
        self.simulation = experiment.simulation(
            transcript,
            gradients=None if saved is None or is_earlier else saved.gradients,
            hosted=hosted,
            secret=None if secret is None else bytes.fromhex(secret),
        )
        self.simulation.repeated = repeated
        text = group.run_on_first(lambda: self._open_folder(saved))
        self.simulation.history = History.from_jsonl(text)
        # Early stopping and checkpoints need all ranks; rank 0 logs.
        self.callbacks = [
            callback
            for callback in make_callbacks(experiment.config, folder)
            if group.rank == 0 or isinstance(callback, EarlyStopping | BestCheckpoint)
        ]
        self.stopped: str | None = None
        if saved is not None:
            self.simulation.restore(saved)
        # The iteration of the newest checkpoint; 0 if there is none.
        self.saved_step = self.simulation.t

    @property
    def history(self) -> History:
        return self.simulation.history

    def _open_folder(self, saved: Checkpoint | None) -> str:
        """Write what is known before the first iteration; return the history so far."""
        experiment, folder = self.experiment, self.folder
        if not folder.config.exists():
            # With the backend of the gradients, so that this file gives the same bits again.
            backend = self.simulation.gradients.strategy
            folder.create(with_keys(experiment.config, "run", gradients=backend))
            write_json(folder.path / PROVENANCE, current_provenance())
        folder.write("graph.json", StoredGraph.of(experiment.setting.world, experiment.task.names))
        if experiment.dataset is not None and experiment.partition is not None:
            stored = StoredPartition.of(experiment.dataset, experiment.partition)
            folder.write("partition.json", stored)
        note = "" if experiment.dataset is None else experiment.dataset.note
        names = () if experiment.dataset is None else experiment.dataset.class_names
        classes = None if experiment.dataset is None else experiment.dataset.classes or None
        if (layout := ModelLayout.of(experiment.task, classes, names, note)) is not None:
            model_files.save(layout, folder.path)
        history = ""
        if saved is not None:
            history = History(r for r in folder.read_history() if r.step <= saved.step).to_jsonl()
        write_text(folder.history, history)
        if saved is None or saved.step < experiment.steps:
            # A run that diverged has left a summary; this run has not ended yet.
            folder.summary.unlink(missing_ok=True)
        return history

    def _open_key(self, saved: Checkpoint | None) -> tuple[str | None, int]:
        """Make the key of a run with secret noise; its secret, and the iterations repeated."""
        if not self.experiment.config.run.secret_noise:
            return None, 0
        path, step = self.folder.path, 0 if saved is None else saved.step
        is_new = not self.folder.config.exists()
        self.key = NoiseKey(path) if is_new else NoiseKey.continued(path, step)
        return self.key.secret.hex(), self.key.repeated

    def advance(self, stop_requested: threading.Event) -> None:
        """Run to the last iteration, or until a callback ends the run.

        Raises:
            Interrupted: If a stop is requested before.
        """
        experiment, simulation = self.experiment, self.simulation
        # A run never exceeds its privacy budget: it stops with the model it has.
        steps, keys = min(experiment.steps, simulation.allowed_steps), experiment.config.run
        evaluate_every = keys.evaluate_every * experiment.round_length
        save_every = keys.checkpoint_every * experiment.round_length
        if simulation.state is None:
            self._allow(simulation.t)
            simulation.start()
        # A resumed run starts wherever it was stopped.
        if simulation.t % evaluate_every == 0:
            self._evaluate()
        while simulation.t < steps and self.stopped is None:
            if self.key is not None and simulation.t >= self.key.begun:
                self._allow(min(steps, simulation.t - simulation.t % save_every + save_every))
            simulation.step()
            self.listener.on_step(simulation)
            last = simulation.t == steps
            if last or simulation.t % evaluate_every == 0:
                self._evaluate()
                last = last or self.stopped is not None
            # Read once: a request that arrives while saving waits for the next iteration.
            stop = self.group.any(stop_requested.is_set())
            if last or stop or simulation.t % save_every == 0:
                self._save()
            if stop and not last:
                self._allow(simulation.t)
                raise Interrupted(
                    f"Stopped after iteration {simulation.t} of {steps}; the state is saved."
                )
        if self.key is not None:
            self.key.remove()

    def _allow(self, step: float) -> None:
        """Note that iterations up to `step` may be begun with the secret key, if there is one."""
        if self.key is not None:
            self.key.allow(int(step))

    def _evaluate(self) -> None:
        callbacks = self.callbacks
        if self.history and self.history[-1].step == self.simulation.t:
            # A resumed run: this record is logged already.
            callbacks = [callback for callback in callbacks if isinstance(callback, EarlyStopping)]
        else:
            record = self.simulation.record()
            if self.group.rank == 0:
                append_text(self.folder.history, History([record]).to_jsonl())
            self.listener.on_record(record)
        self.stopped = why_stop(callbacks, self.simulation)

    def _save(self) -> None:
        simulation = self.simulation
        # A state that is not finite must not replace one that is.
        simulation.check()
        checkpoint = simulation.checkpoint(self.fingerprint)
        if simulation.recorder is not None:
            # First, so that after a kill the transcript never lacks messages before the checkpoint.
            transcript = simulation.recorder.transcript
            transcript_files.save(transcript, self.folder.path, self.fingerprint)
        keep = self.experiment.config.run.keep_checkpoints
        checkpoints.save(self.folder.checkpoints, checkpoint, simulation.hosted, keep)
        self.saved_step = simulation.t

    def _predictions(self) -> dict[str, Any]:
        """The confusion matrix, and why the accuracy may mislead, if so."""
        if not self.history:
            return {}
        record, dataset = self.history[-1], self.experiment.dataset
        if record.predictions is None and record.baseline is not None:
            if self.simulation.diverged is not None:
                return {}
            # A finished run that was resumed has read its records from the file.
            record = self.simulation.observe()
        names = () if dataset is None else dataset.class_names
        predictions, facts = record.predictions, {}
        if predictions is not None and (confusion := predictions.as_dict(names)) is not None:
            facts["confusion"] = confusion
        if alerts := record.alerts(names):
            facts["alerts"] = alerts
        return facts

    def summary(self) -> dict[str, Any]:
        """What summary.json holds."""
        experiment, simulation = self.experiment, self.simulation
        clients = experiment.graph.clients
        last = self.history[-1].as_dict() if self.history else {}
        notes: list[str] = []
        if (dataset := experiment.dataset) is not None and dataset.note:
            notes.append(dataset.note)
        notes += simulation.remarks + simulation.cautions
        if self.group.ranks > 1:
            notes.append(simulation.hosted.partition.describe())
        if clients > MAX_EVALUATED_CLIENTS:
            evaluated = f"{MAX_EVALUATED_CLIENTS} evenly spaced clients of {clients}"
            notes.append(f"accuracy and loss over {evaluated}")
        ends = {"diverged": simulation.diverged, "stopped": self.stopped}
        return summary_of(
            experiment.algorithm,
            experiment.task,
            dict.fromkeys((*STANDARD, *SCALARS)) | last,
            simulation.t,
            simulation.t // experiment.round_length,
            experiment.config.run.seed,
            **{key: value for key, value in ends.items() if value},
            **self._predictions(),
            privacy=simulation.spent_budget,
            device=experiment.config.run.device,
            precision=experiment.config.run.precision,
            gradients=asdict(simulation.gradients),
            notes=notes,
        ) | {"wall_seconds": simulation.wall_seconds}
