"""The demonstration: four algorithms on bundled digits, and what a neighbour learns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.auditing.judgement import answer_of
from tacit.auditing.result import Audit
from tacit.auditing.statements import StrongestLeak
from tacit.config.build import Experiment, build
from tacit.config.loading import make_config
from tacit.config.sections import Config
from tacit.config.variants import make_variant
from tacit.core.errors import Interrupted
from tacit.core.provenance import current_provenance
from tacit.core.storage import write_json
from tacit.experiment.auditing import AuditSubject, audit
from tacit.experiment.folder import RunFolder
from tacit.experiment.run import ProgressListener, run
from tacit.privacy.planning import epsilon_text
from tacit.report.audit_sections import stored_audit
from tacit.report.page import Table
from tacit.report.rendering import render
from tacit.report.report import write_report
from tacit.report.stored_audit import FILE, config_digest

DEMO_ALGORITHMS = {"dsgt": "no protection", "dp-dsgt": "own noise", "lppa": "noise that cancels"}
PRIVATE = "private-sgd"
VICTIM = 0
# The other clients whose view is audited: one neighbour of client 0, and both.
ONE, BOTH = "curious(1)", "curious(1,4)"
AUDITED_ITERATIONS = 6
CAVEAT = "a neighbour on the ring knows two of the four masks on a message of lppa"
HEADER = ("algorithm", "protection", "accuracy", "error of the first gradient a neighbour sees")


@dataclass(frozen=True)
class DemoRow:
    """One algorithm; the error is the mean over clients of ‖γ⁰ − ∇L(θ⁰)‖ / ‖∇L(θ⁰)‖.

    It is None if no neighbour sees a gradient. ε is that of the guarantee, if there is one.
    """

    summary: dict[str, Any]
    protection: str
    first_message_error: float | None
    epsilon: float | None = None

    @property
    def label(self) -> str:
        return str(self.summary["algorithm"])

    @property
    def accuracy(self) -> float | None:
        """In percent, the mean over clients; None if it is not finite."""
        mean: float | None = self.summary["accuracy"]["mean"]
        return mean

    @property
    def cells(self) -> list[str]:
        """The text below `HEADER`."""
        accuracy, error = self.accuracy, self.first_message_error
        seen = "0 % (sees it all)" if error == 0 else "nothing but the noisy sum"
        return [
            self.label,
            self.protection,
            "–" if accuracy is None else f"{accuracy:.1f} %",
            f"{100 * error:.0f} %" if error else seen,
        ]

    def as_dict(self) -> dict[str, Any]:
        keys = ("accuracy", "loss", "baseline", "bytes_sent")
        return {
            "label": self.label,
            **{key: self.summary[key] for key in keys},
            "protection": self.protection,
            "first_message_error": self.first_message_error,
            "epsilon": self.epsilon,
        }


@dataclass(frozen=True)
class DemoResult:
    """The table, the path of the report, and sentences from the audit."""

    rows: list[DemoRow]
    report: Path
    audit: list[str]


def demo_config() -> Config:
    """Five clients on a ring, 800 digits each, a small network."""
    settings = {
        "data": {"name": "mnist-mini"},
        "model": {"name": "mlp", "hidden": [64]},
        "graph": {"kind": "ring", "clients": 5},
        "algorithm": {"name": "lppa", "lr": 0.2, "noise": {"law": "laplace", "scale": 0.01}},
        "run": {"rounds": 20, "batch_size": 32, "allow_divergence": True, "checkpoint_every": 20},
    }
    return make_config(settings)


def private_config(config: Config) -> Config:
    """The same clients, data and model, trained with a guarantee.

    Larger batches make the noise smaller in proportion; 200 iterations are enough.
    """
    settings = config.as_dict()
    settings["algorithm"] = {"name": PRIVATE, "lr": 1.0, "momentum": 0.9}
    settings["privacy"] = {"epsilon": 3.0, "delta": 1e-5, "clip": 0.2}
    settings["run"] |= {"batch_size": 160, "iterations_per_round": 10}
    return make_config(settings)


def run_demo(out: Path, listener_for: Callable[[str, int], ProgressListener]) -> DemoResult:
    """Train with all four algorithms, audit them briefly, and write the report."""
    config = demo_config()
    configs = {
        name: make_variant(config, name, list(DEMO_ALGORITHMS)) for name in DEMO_ALGORITHMS
    } | {PRIVATE: private_config(config)}
    RunFolder(out).require_empty()
    results = {}
    try:
        for name, variant in configs.items():
            folder, seed = out / f"{name}-seed{variant.run.seed}", variant.run.seed
            results[name] = run(variant, folder, listener=listener_for(name, seed))
    except Interrupted:
        raise Interrupted("Stopped before the end; start again with `tacit demo`.") from None
    experiments = {name: build(variant) for name, variant in configs.items()}
    rows = [make_demo_row(results[name].summary, experiments[name]) for name in configs]
    folders = [result.folder.path for result in results.values()]
    audits = audit_all(experiments)
    _store_audits(audits, folders)
    sentences = audit_sentences(audits)
    page, made = out / "report.html", current_provenance()
    table = Table(HEADER, [row.cells for row in rows])
    seen = render("demo.html.jinja", table=table, sentences=sentences)
    sections = {"What a neighbour sees": seen}
    title = "Tacit demonstration"
    write_report(folders, page, title=title, sections=sections, made=made)
    return DemoResult(rows, page, sentences)


def make_demo_row(summary: dict[str, Any], experiment: Experiment) -> DemoRow:
    budget = experiment.algorithm.budget
    if budget is None:
        error = first_message_error(experiment)
        return DemoRow(summary, DEMO_ALGORITHMS[summary["algorithm"]], error)
    return DemoRow(summary, f"masked sums, ε = {budget.epsilon:g}", None, budget.epsilon)


def audit_all(experiments: dict[str, Experiment]) -> dict[str, Audit]:
    """What one neighbour and both neighbours of client 0 can learn, proved and bounded."""
    return {
        name: audit(
            AuditSubject(experiment),
            [ONE, BOTH],
            VICTIM,
            iterations=min(AUDITED_ITERATIONS, experiment.steps),
            attacks=False,
            heat_map=False,
        )
        for name, experiment in experiments.items()
    }


def audit_sentences(audits: dict[str, Audit]) -> list[str]:
    """What neighbours of client 0 can compute, and what is guaranteed."""
    leaks: dict[str, list[str]] = {"one": [], "both": []}
    guarantees = []
    for name, done in audits.items():
        for result, several in zip(done.results, leaks.values(), strict=True):
            several.append(f"{name}: {StrongestLeak.of(result.leakage[0])}")
        alone, together = (result.ledgers[0].best for result in done.results)
        if math.isfinite(alone.epsilon):
            guarantees.append(
                f"{name}, with ε = {epsilon_text(alone.epsilon)} per training sample against one "
                f"neighbour and {epsilon_text(together.epsilon)} against both (whole run, "
                f"δ = {alone.delta:g})"
            )
    one, both = ("; ".join(listed) for listed in leaks.values())
    guarantee = f"only {'; '.join(guarantees)}." if guarantees else "none of them."
    return [
        f"Audit: of client {VICTIM}, one neighbour can compute: {one}.",
        f"Audit: both neighbours together: {both}.",
        f"Differential privacy: {guarantee}",
    ]


def _store_audits(audits: dict[str, Audit], folders: list[Path]) -> None:
    """Put each audit into the folder of its run, where reports find it."""
    made = current_provenance()
    for done, folder in zip(audits.values(), folders, strict=True):
        stored = stored_audit(done, answer_of(done), config_digest(folder), made)
        write_json(folder / FILE, stored.model_dump())


def first_message_error(experiment: Experiment) -> float:
    """Relative distance of the first tracker that a client sends from its gradient."""
    simulation = experiment.simulation()
    simulation.start()
    sent, gradient = simulation.state.gamma, simulation.state.grad
    return float(((sent - gradient).norm(dim=1) / gradient.norm(dim=1)).mean())
