"""The demonstration: three algorithms on bundled digits, and what a neighbour learns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.ledger import compute_ledger
from tacit.auditing.result import strongest_leak
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.leakage import Leakage
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.config.build import Experiment, build
from tacit.config.loading import make_config
from tacit.config.sections import Config
from tacit.core.errors import Interrupted
from tacit.experiment.compare import ComparisonRow, compare, make_variant
from tacit.experiment.run import ProgressListener
from tacit.report.page import table
from tacit.report.report import write_report

DEMO_ALGORITHMS = {"dsgt": "no protection", "dp-dsgt": "own noise", "lppa": "noise that cancels"}
VICTIM = 0
AUDITED_ITERATIONS = 6
CAVEAT = "a neighbour on the ring knows two of the four masks on a message of lppa"
HEADER = ("algorithm", "protection", "accuracy", "error of the first gradient a neighbour sees")


@dataclass(frozen=True)
class DemoRow:
    """One algorithm; the error is the mean over clients of ‖γ⁰ − ∇L(θ⁰)‖ / ‖∇L(θ⁰)‖."""

    result: ComparisonRow
    protection: str
    first_message_error: float

    @property
    def cells(self) -> list[str]:
        """The text below `HEADER`."""
        accuracy, error = self.result.accuracy, self.first_message_error
        return [
            self.result.label,
            self.protection,
            "–" if accuracy is None else f"{accuracy[0]:.1f} %",
            f"{100 * error:.0f} %" if error else "0 % (sees it all)",
        ]

    def as_dict(self) -> dict[str, Any]:
        own = {"protection": self.protection, "first_message_error": self.first_message_error}
        return self.result.as_dict() | own


@dataclass(frozen=True)
class DemoResult:
    """The table, the path of the report, and two sentences from the audit."""

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


def run_demo(out: Path, listener_for: Callable[[str, int], ProgressListener]) -> DemoResult:
    """Train with all three algorithms, audit them briefly, and write the report."""
    config, names = demo_config(), list(DEMO_ALGORITHMS)
    try:
        comparison = compare(config, names, 1, out, listener_for=listener_for)
    except Interrupted:
        raise Interrupted("Stopped before the end; start again with `tacit demo`.") from None
    experiments = {name: build(make_variant(config, name, names)) for name in names}
    rows = [
        DemoRow(row, DEMO_ALGORITHMS[row.label], first_message_error(experiments[row.label]))
        for row in comparison.rows
    ]
    audit = short_audit(experiments)
    page, sections = out / "report.html", {"What a neighbour sees": _report_section(rows, audit)}
    write_report(comparison.folders, page, title="Tacit demonstration", sections=sections)
    return DemoResult(rows, page, audit)


def short_audit(experiments: dict[str, Experiment]) -> list[str]:
    """What one neighbour and both neighbours of client 0 can compute, proved on symbols."""
    leaks: dict[str, list[str]] = {"curious(1)": [], "curious(1,4)": []}
    epsilons = []
    for name, experiment in experiments.items():
        run = run_on_symbols(
            experiment.algorithm,
            experiment.graph,
            AUDITED_ITERATIONS,
            common_start=experiment.setting.start_alike,
        )
        clip, width = experiment.task.clip, experiment.task.parameters
        for text, found in leaks.items():
            adversary = Adversary.parse(text)
            leak = strongest_leak(Leakage(Knowledge(run, adversary), VICTIM))
            found.append(f"{name}: {leak}")
            account = compute_ledger(run, adversary, VICTIM, clip=clip, parameters=width)
            epsilons.append(account.upper.epsilon)
    one, both = ("; ".join(found) for found in leaks.values())
    none = " No algorithm has a differential-privacy guarantee."
    guarantee = none if all(map(math.isinf, epsilons)) else ""
    return [
        f"Audit: of client {VICTIM}, one neighbour can compute: {one}.",
        f"Audit: both neighbours together: {both}.{guarantee}",
    ]


def first_message_error(experiment: Experiment) -> float:
    """Relative distance of the first tracker that a client sends from its gradient."""
    simulation = experiment.simulation()
    simulation.start()
    sent, gradient = simulation.state.gamma, simulation.state.grad
    return float(((sent - gradient).norm(dim=1) / gradient.norm(dim=1)).mean())


def _report_section(rows: list[DemoRow], audit: list[str]) -> str:
    text = (
        "<p>Each client sends its model and its gradient tracker γ to its neighbours. The first γ "
        "is the gradient of its data: exactly (an error of 0 %), hidden under the client's own "
        "noise, which stays in the sum, or hidden under masks that its neighbours subtract again, "
        "so that the sum does not change. The error is that of the message itself; a neighbour on "
        "this ring knows two of the four masks in it.</p>"
    )
    sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in audit)
    return text + table(HEADER, [row.cells for row in rows]) + sentences
