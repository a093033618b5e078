"""Audits of runs, configurations and run folders, and the files that an audit writes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from tacit.algorithms.algorithm import Algorithm
from tacit.auditing.adversary import Adversary
from tacit.auditing.answer import Answer
from tacit.auditing.audit import run_audit
from tacit.auditing.client_names import client_position, with_positions
from tacit.auditing.options import AttackOptions, AuditOptions, Progress
from tacit.auditing.result import Audit
from tacit.config.build import Experiment, build
from tacit.config.loading import load_config, no_note
from tacit.config.overrides import Note
from tacit.config.sections import Config
from tacit.config.variants import make_variant
from tacit.core.checks import check_count, is_count
from tacit.core.errors import Misuse, first_line
from tacit.core.provenance import current_provenance
from tacit.core.storage import read_json, require_writable, write_json, write_text
from tacit.data import Dataset
from tacit.engines.run import Run
from tacit.experiment.folder import RunFolder
from tacit.experiment.run_many import LoadedData
from tacit.record import checkpoint as checkpoints, transcript_files
from tacit.record.transcript import Transcript
from tacit.report.finished_grid import Grid


@dataclass(frozen=True, eq=False)
class AuditSubject:
    """An experiment to audit, and what a run of it left."""

    experiment: Experiment
    folder: RunFolder | None = None
    transcript: Transcript | None = None
    final: Tensor | None = None  # trained models [N, P]
    ended_after: int | None = None  # iterations of a run that has ended

    @property
    def steps(self) -> int:
        """Iterations of the whole run: all that are planned, unless it ended before."""
        return self.experiment.steps if self.ended_after is None else self.ended_after


def load_subject(
    source: Path | str | Config,
    overrides: Sequence[str] = (),
    data_folder: Path | None = None,
    dataset: Dataset | None = None,
    note: Note = no_note,
) -> AuditSubject:
    """Load a configuration, its file, or a run folder; `dataset` saves loading the data again."""
    if isinstance(source, Config):
        return AuditSubject(build(source, data_folder, dataset))
    given: Any = source
    if not isinstance(given, str | Path):
        problem = f"The subject of the audit is a {type(given).__name__}."
        raise Misuse(problem, "Give a run, a configuration or its file, or a run folder.")
    path = Path(source)
    if not _is_folder(path):
        return AuditSubject(build(load_config(path, overrides, note), data_folder, dataset))
    if overrides:
        command = shlex.join(["tacit", "audit", str(path / "config.toml")])
        raise Misuse(
            "--set does not go with a run folder: the run is over.",
            f"Audit the configuration instead: {command} --set …",
        )
    folder = RunFolder(path)
    runs = sorted(run.parent for run in path.glob("*/history.jsonl"))
    if runs and not folder.config.exists():
        raise Misuse(
            f"{path} is neither the folder of a run nor of a grid: it holds {len(runs)} runs.",
            f"Give one of them, such as {runs[0]}.",
        )
    config = folder.read_config()
    experiment = build(config, data_folder, dataset)
    expected = folder.fingerprint_of(config)
    transcript = None
    if (path / "transcript.json").exists():
        transcript, found = transcript_files.load(path)
        if found != expected:
            raise Misuse(
                f"The transcript in {path} is of a run with another configuration.",
                "Record the run again.",
            )
    saved = checkpoints.load_latest(folder.checkpoints, experiment.algorithm, expected)
    ended = read_json(folder.summary).get("steps") if folder.summary.exists() else None
    ended = ended if is_count(ended, 0) else None
    subject = AuditSubject(experiment, folder, transcript, ended_after=ended)
    final = None if saved is None or saved.step < subject.steps else saved.state.theta
    return replace(subject, final=final)


def load_grid(
    grid: Grid, overrides: Sequence[str] = (), data_folder: Path | None = None
) -> dict[str, AuditSubject]:
    """The run with the first seed of each setting of a grid, by the setting's label."""
    data, subjects = LoadedData(data_folder), {}
    for setting in grid.settings:
        if setting.runs:
            folder = grid.folder / setting.runs[0].name
            dataset = data.of(RunFolder(folder).read_config())
            subjects[setting.label] = load_subject(folder, overrides, data_folder, dataset)
    if not subjects:
        raise Misuse(
            f"No run of the grid in {grid.folder} has ended.",
            "Correct the configuration, and run it again.",
        )
    return subjects


def load_variants(
    source: Path,
    variants: Sequence[str],
    overrides: Sequence[str] = (),
    data_folder: Path | None = None,
    note: Note = no_note,
) -> dict[str, AuditSubject]:
    """A configuration with each of several algorithms, such as "lppa+fresh=true", by its label."""
    if source.is_dir():
        raise Misuse(
            "--algorithms does not go with a run folder: the run had one.",
            f"Audit the configuration instead: {source / 'config.toml'}.",
        )
    if not variants:
        raise Misuse("--algorithms names none.", "Give at least one; see `tacit algorithms`.")
    config = load_config(source, overrides, note)
    subjects: dict[str, AuditSubject] = {}
    dataset: Dataset | None = None
    for label in dict.fromkeys(variants):
        subjects[label] = load_subject(
            make_variant(config, label, variants), (), data_folder, dataset
        )
        dataset = subjects[label].experiment.dataset
    return subjects


def audit(
    subject: Run | AuditSubject | Config | str | Path,
    adversary: Adversary | str | Sequence[Adversary | str] | None = None,
    victim: int | str | Sequence[int | str] = 0,
    *,
    iterations: int | None = None,
    delta: float | None = None,
    attacks: bool | AttackOptions = True,
    canaries: AttackOptions | None = None,
    heat_map: bool | None = None,
    overrides: Sequence[str] = (),
    data_folder: Path | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Find out who can learn what about a client's data: proved, bounded and measured.

    Args:
        subject: A run, a configuration or its file, or a run folder.
        adversary: One adversary or several, as objects or as text such as
            `"curious(1,4)+eavesdropper"`, or `"worst(2)"` for the two neighbours of the victim that
            learn most together, or `"malicious(1):echo"` for a client that deviates. By default the
            worst one and two neighbours, all of them, an eavesdropper, and the server if there is
            one.
        victim: One client or several whose data are at stake, by position, or by name if they have
            names.
        iterations: How many iterations the adversaries see, from the first. By default 10, or all
            that a shorter run or its transcript has.
        delta: δ of the differential-privacy guarantee. By default the promised one, or 1e-5.
        attacks: Whether to attack, and how hard. False only proves and bounds.
        canaries: How hard canaries try that are measured without attacks.
        heat_map: Whether to compute what each client learns about each other. By default up to 30
            clients.
        overrides: Changes to a configuration file, such as `"algorithm.lr=0.05"`.
        data_folder: Where the datasets of a configuration are.
        progress: Called with a description, the steps done and the steps in all.

    Returns:
        The results of each adversary. `print(audit)` shows the verdicts.

    Raises:
        Misuse: An adversary or a victim does not exist, the run has too few iterations, or its
            transcript lacks what the adversary holds.

    Example:
        >>> import tacit, torch
        >>> task = tacit.quadratic(torch.eye(2).repeat(5, 1, 1), torch.zeros(5, 2))
        >>> graph = tacit.Topology.ring(5).mixing("metropolis")
        >>> run = tacit.run(task, tacit.DSGT(lr=0.1), graph, steps=4)
        >>> audit = tacit.audit(run, "curious(1)", victim=0)
        >>> audit.results[0].verdicts[0].summary
        'curious(1) computes 3 of 5 gradients of client 0 exactly'
    """
    adversaries = [adversary] if isinstance(adversary, Adversary | str) else adversary
    _check_arguments(adversaries, iterations, attacks)
    final: Tensor | None
    if isinstance(subject, Run):
        setting, steps = subject.setting, subject.history[-1].step
        transcript, final = subject.transcript, subject.theta.cpu()
    else:
        if not isinstance(subject, AuditSubject):
            subject = load_subject(subject, overrides, data_folder)
        setting, steps = subject.experiment.setting, subject.steps
        transcript, final = subject.transcript, subject.final
    victims = [victim] if isinstance(victim, str) or not isinstance(victim, Sequence) else victim
    if names := setting.task.names:
        victims = [client_position(client, names) for client in victims]
        adversaries = adversaries and [
            with_positions(given, names) if isinstance(given, str) else given
            for given in adversaries
        ]
    if iterations is None:
        recorded = steps if transcript is None else transcript.last_tick
        iterations = max(1, min(10, steps, recorded))
    if iterations > steps:
        raise Misuse(
            f"The audit needs {iterations} iterations, but the run has {steps}.",
            f"Audit at most {steps}, or run longer.",
        )
    options = AuditOptions(
        victims=list(dict.fromkeys(_number(client) for client in victims)),
        iterations=iterations,
        steps=_covered_steps(setting.algorithm, steps),
        delta=promised_delta(setting.algorithm) if delta is None else delta,
        attacks=attacks,
        canaries=canaries,
        heat_map=heat_map,
        transcript=transcript,
        final=final,
        progress=progress,
    )
    return run_audit(setting, adversaries, options)


def _check_arguments(adversaries: Any, iterations: Any, attacks: Any) -> None:
    named = isinstance(adversaries, Sequence) and all(
        isinstance(given, Adversary | str) for given in adversaries
    )
    if adversaries is not None and not named:
        problem = f"adversary is {adversaries!r}."
        raise Misuse(problem, 'Give one such as "curious(1)", or a list of them.')
    if iterations is not None:
        check_count("iterations", iterations)
    if not isinstance(attacks, bool | AttackOptions):
        raise Misuse(f"attacks is {attacks!r}.", "Give True, False or AttackOptions.")


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError) as problem:
        # A name that is too long, or with a null character.
        raise Misuse(f"Cannot read {str(path)[:200]}: {first_line(problem)}.") from None


def _number(victim: int | str) -> int:
    if not isinstance(victim, str) and not is_count(victim, 0):
        raise Misuse(f"The victim is {victim!r}.", "Give a number from 0, or a name.")
    if isinstance(victim, str) and not victim.isdecimal():
        raise Misuse(f"The victim {victim!r} is no client: they have no names.", "Give a number.")
    return int(victim)


def _covered_steps(algorithm: Algorithm, steps: int) -> int:
    """The iterations that bounds of a whole run cover.

    Results may have ended a run early. When they do depends on the data, so a guarantee is that of
    all iterations that it could have had.
    """
    budget = algorithm.budget
    return steps if budget is None else max(steps, int(min(budget.steps, budget.allowed_steps)))


def promised_delta(algorithm: Algorithm) -> float:
    """δ of the guarantee that an algorithm promises, or 1e-5."""
    budget = algorithm.budget
    return 1e-5 if budget is None else budget.delta


def write_audit(
    audit: Audit, subject: AuditSubject, out: Path, progress: Progress | None = None
) -> tuple[Path, Path]:
    """Write audit.json and report.html; the report of a run gets the audit as sections.

    Before, it examines what would change the answer; `progress` is called as in `audit`.
    """
    from tacit.experiment.alternatives import with_alternatives

    require_writable(out)
    answer = with_alternatives(audit.answer, audit, subject.experiment, progress)
    folder = None if subject.folder is None else subject.folder.path
    title = f"Audit of {audit.setting.algorithm.name} on {subject.experiment.config.task_name}"
    return _write_files(audit, answer, out, folder, title)


def save_audit(audit: Audit, folder: Path | str) -> Path:
    """Write an audit into the folder of its run, or into a folder of its own.

    The folder gets audit.json with all numbers, and report.html, which starts with the answer
    whether it is safe to take part. Later reports of the run keep the audit.

    Args:
        audit: What `tacit.audit` returned.
        folder: Where `Run.save` or `tacit run` wrote the run; or any other folder, for a page of
            the audit alone.

    Returns:
        The page.

    Raises:
        Misuse: If the folder has another run or cannot be written.

    Example:
        >>> import tempfile, tacit, torch
        >>> task = tacit.quadratic(torch.eye(2).repeat(5, 1, 1), torch.zeros(5, 2))
        >>> graph = tacit.Topology.ring(5).mixing("metropolis")
        >>> run = tacit.run(task, tacit.DSGT(lr=0.1), graph, steps=4)
        >>> folder = run.save(tempfile.mkdtemp())
        >>> tacit.save_audit(tacit.audit(run, "curious(1)"), folder).name
        'report.html'
    """
    given: tuple[Any, Any] = audit, folder
    if not isinstance(given[0], Audit):
        raise Misuse(
            f"The audit is a {type(given[0]).__name__}.", "Give what tacit.audit returned."
        )
    if not isinstance(given[1], str | Path):
        raise Misuse(f"folder is a {type(given[1]).__name__}.", "Give the name of a folder.")
    path = Path(folder)
    require_writable(path)
    is_run = (path / "history.jsonl").exists()
    if is_run:
        _check_same_run(audit, path)
    title = f"Audit of {audit.setting.algorithm.name}"
    return _write_files(audit, audit.answer, path, path if is_run else None, title)[1]


def _check_same_run(audit: Audit, folder: Path) -> None:
    """Raise Misuse if the audit is not one of the run in this folder."""
    file, setting = RunFolder(folder).summary, audit.setting
    if not file.exists():
        return  # The run has not ended.
    summary = read_json(file)
    audited = {
        "algorithm": setting.algorithm.name,
        "clients": setting.graph.clients,
        "parameters": setting.task.parameters,
        "seed": int(setting.seed),
    }
    for key, value in audited.items():
        if summary.get(key) != value:
            raise Misuse(
                f"The run in {folder} is another one: its {key} is {summary.get(key)}, that of the "
                f"audited run is {value}.",
                "Give the folder of the audited run, or a new folder.",
            )


def _write_files(
    audit: Audit, answer: Answer, out: Path, folder: Path | None, title: str
) -> tuple[Path, Path]:
    """Write audit.json and report.html into `out`; `folder` is that of the run, if there is one."""
    from tacit.report.audit_sections import audit_page, stored_audit
    from tacit.report.report import write_report
    from tacit.report.stored_audit import FILE, config_digest

    out.mkdir(parents=True, exist_ok=True)
    numbers, page = out / "audit.json", out / "report.html"
    write_json(numbers, audit.as_dict() | {"answer": answer.as_dict()})
    made = current_provenance()
    stored = stored_audit(audit, answer, "" if folder is None else config_digest(folder), made)
    if folder is not None and (folder / "history.jsonl").exists():
        # In the folder of the run, later reports find it.
        write_json(out / FILE, stored.model_dump())
        write_report([folder], page, title=title, made=made, audit=stored)
    else:
        write_text(page, audit_page(audit, stored, title))
    return numbers, page
