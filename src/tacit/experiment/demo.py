"""The first minute: three rules on the digits that ship with the package, and what a neighbour sees."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path

from torch import Tensor

from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.ledger import compute_ledger
from tacit.auditing.symbolic.leakage import Leakage
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.auditing.verdict import strongest_leak
from tacit.config.build import build
from tacit.config.sections import Config, make_config
from tacit.core.errors import Interrupted
from tacit.experiment.compare import ComparisonRow, compare, make_variant
from tacit.experiment.run import ProgressListener
from tacit.report.page import PageSection, table
from tacit.report.report import write_report
from tacit.simulation import Simulation

DEMO_ALGORITHMS = {
    "dsgt": "no protection",
    "dp-dsgt": "own noise",
    "lppa": "noise that cancels",
}
VICTIM, AUDITED = 0, 6  # whose gradients the audit asks about, after how many iterations
CAVEAT = "of the four masks on a message of lppa, a neighbour on the ring knows the two it shares"


@dataclass(frozen=True)
class DemoRow:
    """One row of the table a newcomer reads."""

    row: ComparisonRow
    protection: str
    first_message_error: float  # mean over clients of ‖γ⁰ − ∇L(θ⁰)‖ / ‖∇L(θ⁰)‖


@dataclass(frozen=True)
class DemoResult:
    """The table, where the report is, and the audit in two lines."""

    lines: list[DemoRow]
    report: Path
    audit: list[str]


def demo_config() -> Config:
    """Five clients on a ring, 800 digits each, a small network."""
    return make_config(
        {
            "data": {"name": "mnist-mini"},
            "model": {"name": "mlp", "hidden": [64]},
            "graph": {"kind": "ring", "clients": 5},
            "algorithm": {"name": "lppa", "lr": 0.2, "noise": {"law": "laplace", "scale": 0.01}},
            "run": {
                "rounds": 20,
                "batch_size": 32,
                "allow_divergence": True,
                "checkpoint_every": 20,
            },
        }
    )


def run_demo(out: Path, watch: Callable[[str, int], ProgressListener]) -> DemoResult:
    """Train with DSGT, DP and LPPA on `mnist-mini` and write the report."""
    config = demo_config()
    try:
        comparison = compare(config, list(DEMO_ALGORITHMS), 1, out, watch=watch)
    except Interrupted:
        raise Interrupted("Stopped before the end; start again with `tacit demo`.") from None
    errors = {name: first_message_error(config, name) for name in DEMO_ALGORITHMS}
    lines = [DemoRow(row, DEMO_ALGORITHMS[row.label], errors[row.label]) for row in comparison.rows]
    told = short_audit(config)
    report = write_report(
        comparison.folders,
        out / "report.html",
        title="Tacit demonstration",
        sections=[_section(lines, told)],
    )
    return DemoResult(lines, report, told)


def short_audit(config: Config) -> list[str]:
    """What one neighbour, and both together, compute of client 0 under each rule: proved, on symbols."""
    words: dict[str, list[str]] = {"curious(1)": [], "curious(1,4)": []}
    guarantees = []
    for name in DEMO_ALGORITHMS:
        experiment = build(make_variant(config, name, list(DEMO_ALGORITHMS)))
        run = run_on_symbols(experiment.algorithm, experiment.graph, AUDITED)
        for adversary, said in words.items():
            listener = Adversary.parse(adversary)
            said.append(f"{name}: {strongest_leak(Leakage(Knowledge(run, listener), VICTIM))}")
            clip, width = experiment.task.clip, experiment.task.parameters
            guarantees.append(
                compute_ledger(run, listener, VICTIM, clip=clip, parameters=width).upper.epsilon
            )
    none = all(map(math.isinf, guarantees))
    alone, together = ("; ".join(said) for said in words.values())
    return [
        f"Audit: one neighbour computes of client {VICTIM}: {alone}.",
        f"Audit: both together: {together}."
        + (" No rule has a differential-privacy guarantee." if none else ""),
    ]


def first_message_error(config: Config, name: str) -> float:
    """How far the first tracker that a client sends is from its gradient, relative to the gradient."""
    experiment = build(make_variant(config, name, list(DEMO_ALGORITHMS)))
    simulation = Simulation(
        experiment.algorithm, experiment.task, experiment.graph, seed=config.run.seed
    )
    simulation.start()
    sent: Tensor = simulation.state.gamma
    true: Tensor = simulation.state.grad
    return float(((sent - true).norm(dim=1) / true.norm(dim=1)).mean())


def _section(lines: list[DemoRow], told: list[str]) -> PageSection:
    rows = [
        [
            line.row.label,
            line.protection,
            percent(line.row),
            f"{100 * line.first_message_error:.0f} %",
        ]
        for line in lines
    ]
    words = (
        "<p>Each client sends its model and its gradient tracker γ to its neighbours. The first γ is the gradient "
        "of its data: exactly (an error of 0 %), hidden under noise of its own that stays in the sum for ever, or "
        "hidden under noise that its neighbours subtract again, so that the sum is untouched. The error is that of "
        "the message itself; of the four masks in it, a neighbour on this ring knows the two that it shares.</p>"
    )
    head = ["rule", "protection", "accuracy", "error of the first gradient a neighbour sees"]
    audit = "".join(f"<p>{escape(line)}</p>" for line in told)
    return PageSection("What a neighbour sees", words + table(head, rows) + audit)


def percent(row: ComparisonRow) -> str:
    """Accuracy as people write it."""
    return "–" if row.accuracy is None else f"{row.accuracy[0]:.1f} %"
