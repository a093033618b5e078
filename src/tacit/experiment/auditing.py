"""Audits of configurations and of run folders, and the files they leave: audit.json and a page."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from tacit.auditing.adversary import Adversary
from tacit.auditing.audit import Audit, run_audit
from tacit.config.build import Experiment, build
from tacit.config.sections import Config, load_config
from tacit.core.errors import Misuse
from tacit.core.storage import write_json, write_text
from tacit.data import Dataset
from tacit.experiment.folder import RunFolder, fingerprint
from tacit.record import checkpoint as checkpoints
from tacit.record import transcript_files
from tacit.record.transcript import Transcript
from tacit.simulation import Setting


@dataclass(frozen=True, eq=False)
class AuditSubject:
    """What is audited: an experiment, and what a run of it left."""

    experiment: Experiment
    folder: RunFolder | None = None  # of a run
    transcript: Transcript | None = None
    final: Tensor | None = None  # trained models [N, P]

    @property
    def setting(self) -> Setting:
        """What fixes the run."""
        made = self.experiment
        run = made.config.run
        return Setting(
            made.algorithm, made.task, made.graph, run.seed, run.device, run.gradients, run.prg
        )


def load_subject(
    source: Path | str | Config,
    overrides: Sequence[str] = (),
    data_folder: Path | None = None,
    dataset: Dataset | None = None,
) -> AuditSubject:
    """From a configuration, its file, or the folder of a run; a `dataset` that was loaded before can be handed in."""
    if isinstance(source, Config):
        return AuditSubject(build(source, data_folder, dataset))
    path = Path(source)
    if not path.is_dir():
        return AuditSubject(build(load_config(path, overrides), data_folder, dataset))
    if overrides:
        raise Misuse(
            "--set does not go with the folder of a run: what it said is said.",
            f"Audit the configuration instead: {shlex.join(['tacit', 'audit', str(path / 'config.toml')])} --set …",
        )
    folder = RunFolder(path)
    config = folder.read_config()
    experiment = build(config, data_folder, dataset)
    mark = fingerprint(config)
    transcript = None
    if (path / "transcript.json").exists():
        transcript, of = transcript_files.load(path)
        if of != mark:
            raise Misuse(
                f"The transcript in {path} is of a run with another configuration.",
                "Record the run again.",
            )
    saved = checkpoints.load_latest(folder.checkpoints, experiment.algorithm, mark)
    final = None if saved is None or saved.step < experiment.steps else saved.state.theta
    return AuditSubject(experiment, folder, transcript, final)


def audit_of(
    source: Path | str | Config,
    adversaries: Sequence[Adversary | str] | None = None,
    *,
    overrides: Sequence[str] = (),
    data_folder: Path | None = None,
    **options: Any,
) -> Audit:
    """Audit a configuration or a run; options are those of `conduct`."""
    return audit_subject(load_subject(source, overrides, data_folder), adversaries, **options)


def audit_subject(
    subject: AuditSubject, adversaries: Sequence[Adversary | str] | None = None, **options: Any
) -> Audit:
    """Audit what was read."""
    asked, steps = options.get("iterations", 10), subject.experiment.steps
    if asked > steps:
        raise Misuse(
            f"The audit shall see {asked} iterations, but the run has {steps}.",
            f"Audit {steps} at most, or give the configuration more rounds.",
        )
    transcript = subject.transcript
    if transcript is not None:
        _refuse_unheard(transcript, adversaries)
    return run_audit(
        subject.setting, adversaries, transcript=transcript, final=subject.final, **options
    )


def write_audit(audit: Audit, subject: AuditSubject, out: Path) -> tuple[Path, Path]:
    """Write audit.json and report.html into a folder; the report of a run gets the audit as sections."""
    from tacit.report.audit_sections import audit_page, sections_of
    from tacit.report.report import write_report

    out.mkdir(parents=True, exist_ok=True)
    target = out / "audit.json"
    write_json(target, audit.as_dict())
    page = out / "report.html"
    name = f"Audit of {audit.setting.algorithm.name} on {subject.experiment.config.subject}"
    if subject.folder is not None and (subject.folder.path / "summary.json").exists():
        write_report([subject.folder.path], page, title=name, sections=sections_of(audit))
    else:
        write_text(page, audit_page(audit, name))
    return target, page


def _refuse_unheard(transcript: Transcript, adversaries: Sequence[Adversary | str] | None) -> None:
    """Refuse adversaries whose insides were not recorded, before much is computed."""
    for given in adversaries or ():
        adversary = Adversary.parse(given) if isinstance(given, str) else given
        missing = sorted(adversary.corrupt - set(transcript.keep.insides))
        if missing:
            names = ", ".join(map(str, missing))
            raise Misuse(
                f"What corrupt clients ({names}) hold was not recorded, and {adversary} needs it.",
                f"Record a run with insides = [{names}], or audit its config.toml, which records anew.",
            )
