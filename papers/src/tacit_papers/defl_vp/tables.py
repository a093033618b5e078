"""Xiu et al. 2026, DeFL-VP: Tables 1 to 5, whose rows are variants of one algorithm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from tacit.report.style import PALETTE, plot_style
from tacit_papers.defl_vp import contradictions
from tacit_papers.defl_vp.setting import PROTOCOL, QUICKLY, VARIANTS, config
from tacit_papers.framework.artifact import Artifact
from tacit_papers.framework.cells import Cell, Measure, Published, Scale
from tacit_papers.framework.claims import Claim, ClaimVerdict, claim, grade, grade_all, ordered
from tacit_papers.framework.columns import Column, column_claims, draw_column, panels
from tacit_papers.framework.results import ArtifactResult
from tacit_papers.measures.membership import LossMembership
from tacit_papers.measures.training import CommunicationCost

MEMBERSHIP = (
    "; membership by the loss of each client's trained model, its samples against as many of the "
    "test set, class by class, mean AUC of the clients (the paper names no attack and no adversary)"
)


# Label, tolerance and format of each metric.
METRICS = {
    "accuracy": ("accuracy (%)", 3.0, ".2f"),
    "auc": ("attack AUC", 0.03, ".3f"),
    "rounds": ("rounds to 85 %", 20, ".0f"),
}


def _column(metric: str, papers: Mapping[str, float | None]) -> Column:
    label, tolerance, form = METRICS[metric]
    return Column(
        metric, label, {(name,): paper for name, paper in papers.items()}, tolerance, form
    )


TABLE1 = (
    _column(
        "accuracy",
        {
            "D-PSGD": 85.2,
            "D-PSGD+RR": 82.6,
            "DFL+Compression": 83.7,
            "DFL+VR": 86.9,
            "DeFL-VP": 88.7,
        },
    ),
    _column(
        "rounds",
        {"D-PSGD": 180, "D-PSGD+RR": 200, "DFL+Compression": 192, "DFL+VR": 166, "DeFL-VP": 150},
    ),
)
TABLE2 = (
    _column("auc", {"D-PSGD": 0.677, "D-PSGD+RR": 0.560, "DeFL-VP": 0.497}),
    _column("accuracy", {"D-PSGD": 85.2, "D-PSGD+RR": 82.6, "DeFL-VP": 88.7}),
)
TABLE3 = (
    _column("accuracy", {"0.5": 78.4, "1": 82.1, "2": 85.6, "4": 88.1, "8": 90.0}),
    _column("auc", {"0.5": 0.52, "1": 0.54, "2": 0.57, "4": 0.62, "8": 0.68}),
    _column("rounds", {"0.5": None, "1": None, "2": 194, "4": 162, "8": 141}),
)
TABLE4 = (
    _column("accuracy", {"w/o DP": 90.1, "w/o VR": 84.3, "w/o Comp.": 89.0, "DeFL-VP": 88.7}),
    _column("auc", {"w/o DP": 0.80, "w/o VR": 0.56, "w/o Comp.": 0.54, "DeFL-VP": 0.52}),
)
TABLE5 = (
    _column("accuracy", {"DFL": 86.9, "DFL+Compression": 83.7, "w/o Comp.": 89.0, "DeFL-VP": 88.7}),
    Column("megabytes", "MB sent per client: all", {}, 0.0, ".1f", from_zero=True),
    Column("update_megabytes", "MB sent per client: updates", {}, 0.0, ".1f", from_zero=True),
)
# Seconds of communication in Table 5; the paper does not describe the network.
SECONDS = {"DFL": 128.0, "DFL+Compression": 57.6, "w/o Comp.": 113.6, "DeFL-VP": 45.0}
EPSILONS = tuple(name for (name,) in TABLE3[0].paper)


def _cells(column: Column, measure: Callable[[str, Scale], Measure]) -> Any:
    """A function that makes a cell per row of a column."""

    def cells(scale: Scale) -> list[Cell]:
        return [
            Cell(key, measure(key[0], scale), None if paper is None else Published(paper))
            for key, paper in column.paper.items()
        ]

    return cells


def _attacked(algorithm: dict[str, Any], scale: Scale) -> LossMembership:
    return LossMembership(config(scale, algorithm), scale.pick(85.0, 70.0))


def _variant(name: str, scale: Scale) -> Measure:
    return _attacked(VARIANTS[name], scale)


def _ascends(column: Column, text: str, names: Sequence[str], margin: float = 0.0) -> Claim:
    paper = " < ".join(f"{column.paper[(name,)]:g}" for name in names)
    return ordered(text, paper, [(name,) for name in names], column.metric, margin)


def _fastest(first: str, others: Sequence[str]) -> Claim:
    """One row needs fewer rounds than each of the others; never reached counts as infinite."""
    rounds = TABLE1[1]

    def check(result: ArtifactResult) -> ClaimVerdict:
        reached = {name: rounds.numbers(result, (name,)) for name in (first, *others)}
        means = {
            name: sum(found) / len(found) if found else float("inf")
            for name, found in reached.items()
        }
        ours = ", ".join(f"{name} {rounds.formatted(result, (name,))}" for name in reached)
        return ClaimVerdict(grade_all([means[first] < means[name] for name in others]), ours)

    least = min(rounds.paper[(name,)] or 0 for name in others)
    paper = f"{rounds.paper[(first,)]:g}, the others {least:g}+"
    return Claim(f"{first} reaches the target first", paper, check)


@claim
def _ratio(result: ArtifactResult, less: str, more: str, metric: str, paper: float) -> ClaimVerdict:
    """The share of bytes that compression leaves, beside the share of the paper's seconds."""
    ours = result.mean((less,), metric) / result.mean((more,), metric)
    reason = "of the bytes, the paper's of the seconds"
    return ClaimVerdict(grade(ours - paper, 0.05), f"{ours:.3f}", reason)


def _compression_claims(less: str, more: str, label: str) -> list[Claim]:
    seconds = SECONDS[less] / SECONDS[more]
    texts = {
        "megabytes": f"compression leaves less than half of {label}'s communication",
        "update_megabytes": f"the same, if only the updates of {label} are counted",
    }
    return [
        _ratio(text, f"{seconds:.3f}", less, more, metric, seconds)
        for metric, text in texts.items()
    ]


def _draw_rocs(result: ArtifactResult) -> Figure:
    """Figure 4: the ROC curves; and the AUCs beside the paper's."""
    with plot_style():
        figure = Figure(figsize=(7.0, 3.6), layout="constrained")
        curve, areas = figure.subplots(1, 2)
        for number, cell in enumerate(result.measured):
            if not all("roc" in one for one in cell.values.values()):
                continue
            mean = result.curve(cell.key, "roc")
            curve.plot(mean["false"], mean["true"], color=PALETTE[number], label=cell.key[0])
        curve.plot([0, 1], [0, 1], ":", color=PALETTE[-1], linewidth=1)
        curve.set_xlabel("false positive rate")
        curve.set_ylabel("true positive rate")
        curve.set_aspect("equal")
        curve.legend(loc="lower right")
        draw_column(areas, result, TABLE2[0], PALETTE[0])
        areas.set_title("attack AUC; hollow: the paper's", fontsize=10)
    return figure


table = partial(Artifact, quickly=QUICKLY)
ARTIFACTS = (
    table(
        name="defl-vp/table1",
        title="Table 1: accuracy, and rounds to 85 %, under heterogeneous data",
        axes=("method",),
        cells=_cells(TABLE1[0], _variant),
        metric="accuracy",
        claims=[
            _ascends(
                TABLE1[0],
                "accuracy rises from D-PSGD+RR over compression, D-PSGD and VR to DeFL-VP",
                ("D-PSGD+RR", "DFL+Compression", "D-PSGD", "DFL+VR", "DeFL-VP"),
            ),
            _fastest("DeFL-VP", ("D-PSGD", "D-PSGD+RR", "DFL+Compression", "DFL+VR")),
            *column_claims(TABLE1),
        ],
        contradictions=contradictions.TABLE1,
        draw=panels(TABLE1),
        protocol=f"{PROTOCOL}; the paper does not say with which ε",
    ),
    table(
        name="defl-vp/table2",
        title="Table 2 and figure 4: membership inference",
        axes=("method",),
        cells=_cells(TABLE2[0], _variant),
        metric="auc",
        claims=[
            _ascends(
                TABLE2[0],
                "DeFL-VP reveals least about members, D-PSGD most",
                ("DeFL-VP", "D-PSGD+RR", "D-PSGD"),
            ),
            *column_claims(TABLE2),
        ],
        contradictions=contradictions.TABLE2,
        draw=_draw_rocs,
        protocol=(
            f"{PROTOCOL}{MEMBERSHIP}; the paper's table 3 has 0.62 and 0.68 for DeFL-VP at ε = 4 "
            "and 8"
        ),
        form=".3f",
        unit="area under the ROC curve of the loss",
    ),
    table(
        name="defl-vp/table3",
        title="Table 3 and figure 5: privacy budgets ε from 0.5 to 8",
        axes=("ε",),
        cells=_cells(
            TABLE3[0], lambda epsilon, scale: _attacked({"epsilon": float(epsilon)}, scale)
        ),
        metric="accuracy",
        claims=[
            _ascends(TABLE3[0], "accuracy rises with ε", EPSILONS),
            _ascends(TABLE3[1], "the attack's AUC rises with ε", EPSILONS),
            *column_claims(TABLE3),
        ],
        contradictions=contradictions.TABLE3,
        draw=panels(TABLE3),
        protocol=PROTOCOL + MEMBERSHIP,
    ),
    table(
        name="defl-vp/table4",
        title="Table 4 and figure 6: DeFL-VP without one of its parts",
        axes=("variant",),
        cells=_cells(TABLE4[0], _variant),
        metric="accuracy",
        claims=[
            _ascends(TABLE4[0], "without VR accuracy is lost", ("w/o VR", "DeFL-VP"), 1.0),
            _ascends(TABLE4[0], "privacy costs some accuracy", ("DeFL-VP", "w/o DP")),
            _ascends(TABLE4[1], "without DP the attack succeeds", ("DeFL-VP", "w/o DP"), 0.05),
            _ascends(TABLE4[0], "compression costs some accuracy", ("DeFL-VP", "w/o Comp.")),
            *column_claims(TABLE4),
        ],
        contradictions=contradictions.TABLE4,
        draw=panels(TABLE4),
        protocol=PROTOCOL + MEMBERSHIP,
    ),
    table(
        name="defl-vp/table5",
        title="Table 5: accuracy and communication with and without compression",
        axes=("method",),
        cells=_cells(
            TABLE5[0], lambda name, scale: CommunicationCost(config(scale, VARIANTS[name]))
        ),
        metric="accuracy",
        claims=[
            *_compression_claims("DFL+Compression", "DFL", "DFL"),
            *_compression_claims("DeFL-VP", "w/o Comp.", "DeFL-VP"),
            *column_claims(TABLE5),
        ],
        contradictions=contradictions.TABLE5,
        draw=panels(TABLE5),
        protocol=(
            f"{PROTOCOL}; bytes on the wire are counted, as the paper's seconds are of a network "
            "it does not describe: models (and variates) are sent in full, only updates are "
            "compressed, a sign takes one bit; DFL is D-PSGD sent as model and gradient, though "
            "the paper's 86.9 is what its table 1 has for DFL+VR"
        ),
    ),
)
