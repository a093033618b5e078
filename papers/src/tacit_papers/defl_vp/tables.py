"""Xiu et al. 2026, "DeFL-VP: decentralized federated learning with variance reduction and differential privacy".

Tables 1 to 5, whose rows are variants of one algorithm in one experiment: see `defl_vp_setting`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from tacit.report.style import PALETTE, plot_style
from tacit_papers.defl_vp.setting import PROTOCOL, QUICKLY, VARIANTS, config
from tacit_papers.framework.artifact import Artifact, Cell, Key, Published, Scale
from tacit_papers.framework.claims import Claim, ClaimVerdict, all_or_some, graded, ordered
from tacit_papers.framework.columns import Column, column_claims, draw_column, panels
from tacit_papers.framework.outcome import ArtifactResult
from tacit_papers.measures.attacked_training import AttackedTraining
from tacit_papers.measures.counted_training import CountedTraining

MEMBERSHIP = (
    "; membership by the loss of each client's trained model, its samples against as many of the test set, class by "
    "class, mean AUC of the clients (the paper names no attack and no adversary)"
)


def attacked(scale: Scale, algorithm: dict[str, Any]) -> AttackedTraining:
    """Training, rounds to 85 % and membership inference."""
    return AttackedTraining(config(scale, algorithm), scale.pick(85.0, 70.0))


def _accuracy(papers: dict[str, float]) -> Column:
    return Column(
        "accuracy", "accuracy (%)", {(name,): paper for name, paper in papers.items()}, 3.0
    )


def _auc(papers: dict[str, float]) -> Column:
    return Column(
        "auc", "attack AUC", {(name,): paper for name, paper in papers.items()}, 0.03, ".3f"
    )


def _rounds(papers: dict[str, float | None]) -> Column:
    return Column(
        "rounds", "rounds to 85 %", {(name,): paper for name, paper in papers.items()}, 20, ".0f"
    )


def _published(column: Column, key: Key) -> Published | None:
    number = column.paper.get(key)
    return None if number is None else Published(number)


TABLE1 = (
    _accuracy(
        {
            "D-PSGD": 85.2,
            "D-PSGD+RR": 82.6,
            "DFL+Compression": 83.7,
            "DFL+VR": 86.9,
            "DeFL-VP": 88.7,
        }
    ),
    _rounds(
        {"D-PSGD": 180, "D-PSGD+RR": 200, "DFL+Compression": 192, "DFL+VR": 166, "DeFL-VP": 150}
    ),
)
TABLE2 = (
    _auc({"D-PSGD": 0.677, "D-PSGD+RR": 0.560, "DeFL-VP": 0.497}),
    _accuracy({"D-PSGD": 85.2, "D-PSGD+RR": 82.6, "DeFL-VP": 88.7}),
)
TABLE3 = (
    _accuracy({"0.5": 78.4, "1": 82.1, "2": 85.6, "4": 88.1, "8": 90.0}),
    _auc({"0.5": 0.52, "1": 0.54, "2": 0.57, "4": 0.62, "8": 0.68}),
    _rounds({"0.5": None, "1": None, "2": 194, "4": 162, "8": 141}),
)
TABLE4 = (
    _accuracy({"w/o DP": 90.1, "w/o VR": 84.3, "w/o Comp.": 89.0, "DeFL-VP": 88.7}),
    _auc({"w/o DP": 0.80, "w/o VR": 0.56, "w/o Comp.": 0.54, "DeFL-VP": 0.52}),
)
TABLE5 = (
    _accuracy({"DFL": 86.9, "DFL+Compression": 83.7, "w/o Comp.": 89.0, "DeFL-VP": 88.7}),
    Column("megabytes", "MB sent per client: all", {}, 0.0, ".1f", from_zero=True),
    Column("update_megabytes", "MB sent per client: updates", {}, 0.0, ".1f", from_zero=True),
)
# Seconds of communication in Table 5; the paper does not say of what network.
SECONDS = {"DFL": 128.0, "DFL+Compression": 57.6, "w/o Comp.": 113.6, "DeFL-VP": 45.0}


def _variants(column: Column, scale: Scale) -> list[Cell]:
    """A cell for each variant that a column has."""
    return [
        Cell(key, attacked(scale, VARIANTS[key[0]]), _published(column, key))
        for key in column.paper
    ]


def _budgets(scale: Scale) -> list[Cell]:
    column = TABLE3[0]
    return [
        Cell(key, attacked(scale, {"epsilon": float(key[0])}), _published(column, key))
        for key in column.paper
    ]


def _communication(scale: Scale) -> list[Cell]:
    column = TABLE5[0]
    return [
        Cell(key, CountedTraining(config(scale, VARIANTS[key[0]])), _published(column, key))
        for key in column.paper
    ]


def _by(column: Column, text: str, names: Sequence[str], margin: float = 0.0) -> Claim:
    """A claim that a column ascends over these rows."""
    paper = " < ".join(f"{column.paper[(name,)]:g}" for name in names)
    return ordered([(name,) for name in names], text, paper, column.metric, margin)


def fastest(first: str, others: Sequence[str]) -> Claim:
    """A claim that one row needs fewer rounds than each of the others; who never arrives needs the most."""

    def check(outcome: ArtifactResult) -> ClaimVerdict:
        rounds = TABLE1[1]
        names = [first, *others]
        reached = {name: rounds.ours(outcome, (name,)) for name in names}
        mean = {
            n: sum(found) / len(found) if found else float("inf") for n, found in reached.items()
        }
        right = [mean[first] < mean[name] for name in others]
        words = ", ".join(f"{name} {rounds.words(outcome, (name,))}" for name in names)
        return ClaimVerdict(all_or_some(right), words)

    paper = f"{TABLE1[1].paper[(first,)]:g}, the others {min(TABLE1[1].paper[(o,)] or 0 for o in others):g}+"
    return Claim(f"{first} reaches the target first", paper, check)


def ratio(less: str, more: str, metric: str, text: str) -> Claim:
    """A claim about what compression leaves of the bytes, beside what it leaves of the paper's seconds."""
    paper = SECONDS[less] / SECONDS[more]

    def check(outcome: ArtifactResult) -> ClaimVerdict:
        ours = outcome.mean((less,), metric) / outcome.mean((more,), metric)
        return ClaimVerdict(
            graded(ours - paper, 0.05), f"{ours:.3f}", "of the bytes, the paper's of the seconds"
        )

    return Claim(text, f"{paper:.3f}", check)


def mean_rocs(outcome: ArtifactResult) -> Figure:
    """Figure 4: the ROC curves; and the AUCs beside the paper's."""
    with plot_style():
        figure = Figure(figsize=(7.0, 3.6), layout="constrained")
        curve, areas = figure.subplots(1, 2)
        for number, cell in enumerate(outcome.measured):
            if not all("roc" in one for one in cell.values.values()):
                continue
            mean = outcome.curve(cell.key, "roc")
            curve.plot(mean["false"], mean["true"], color=PALETTE[number], label=cell.key[0])
        curve.plot([0, 1], [0, 1], ":", color=PALETTE[-1], linewidth=1)
        curve.set_xlabel("false positive rate")
        curve.set_ylabel("true positive rate")
        curve.set_aspect("equal")
        curve.legend(loc="lower right")
        draw_column(areas, outcome, TABLE2[0], PALETTE[0])
        areas.set_title("attack AUC; hollow: the paper's", fontsize=10)
    return figure


ARTIFACTS = (
    Artifact(
        name="defl-vp/table1",
        title="Table 1: accuracy, and rounds to 85 %, under heterogeneous data",
        axes=("method",),
        cells=lambda scale: _variants(TABLE1[0], scale),
        metric="accuracy",
        claims=[
            _by(
                TABLE1[0],
                "accuracy rises from D-PSGD+RR over compression, D-PSGD and VR to DeFL-VP",
                ("D-PSGD+RR", "DFL+Compression", "D-PSGD", "DFL+VR", "DeFL-VP"),
            ),
            fastest("DeFL-VP", ("D-PSGD", "D-PSGD+RR", "DFL+Compression", "DFL+VR")),
            *column_claims(TABLE1),
        ],
        draw=panels(TABLE1),
        protocol=f"{PROTOCOL}; the paper does not say with which ε",
        quickly=QUICKLY,
        repeats=3,
        quick_repeats=1,
    ),
    Artifact(
        name="defl-vp/table2",
        title="Table 2 and figure 4: membership inference",
        axes=("method",),
        cells=lambda scale: _variants(TABLE2[0], scale),
        metric="auc",
        claims=[
            _by(
                TABLE2[0],
                "DeFL-VP tells least of members, D-PSGD most",
                ("DeFL-VP", "D-PSGD+RR", "D-PSGD"),
            ),
            *column_claims(TABLE2),
        ],
        draw=mean_rocs,
        protocol=f"{PROTOCOL}{MEMBERSHIP}; the paper's table 3 has 0.62 and 0.68 for DeFL-VP at ε = 4 and 8",
        quickly=QUICKLY,
        repeats=3,
        quick_repeats=1,
        form=".3f",
        unit="area under the ROC curve of the loss",
    ),
    Artifact(
        name="defl-vp/table3",
        title="Table 3 and figure 5: privacy budgets ε from 0.5 to 8",
        axes=("ε",),
        cells=_budgets,
        metric="accuracy",
        claims=[
            _by(TABLE3[0], "accuracy rises with ε", tuple(key[0] for key in TABLE3[0].paper)),
            _by(
                TABLE3[1], "the attack's AUC rises with ε", tuple(key[0] for key in TABLE3[1].paper)
            ),
            *column_claims(TABLE3),
        ],
        draw=panels(TABLE3),
        protocol=PROTOCOL + MEMBERSHIP,
        quickly=QUICKLY,
        repeats=3,
        quick_repeats=1,
    ),
    Artifact(
        name="defl-vp/table4",
        title="Table 4 and figure 6: DeFL-VP without one of its parts",
        axes=("variant",),
        cells=lambda scale: _variants(TABLE4[0], scale),
        metric="accuracy",
        claims=[
            _by(TABLE4[0], "without VR accuracy is lost", ("w/o VR", "DeFL-VP"), 1.0),
            _by(TABLE4[0], "privacy costs some accuracy", ("DeFL-VP", "w/o DP")),
            _by(TABLE4[1], "without DP the attack succeeds", ("DeFL-VP", "w/o DP"), 0.05),
            _by(TABLE4[0], "compression costs some accuracy", ("DeFL-VP", "w/o Comp.")),
            *column_claims(TABLE4),
        ],
        draw=panels(TABLE4),
        protocol=PROTOCOL + MEMBERSHIP,
        quickly=QUICKLY,
        repeats=3,
        quick_repeats=1,
    ),
    Artifact(
        name="defl-vp/table5",
        title="Table 5: accuracy and communication with and without compression",
        axes=("method",),
        cells=_communication,
        metric="accuracy",
        claims=[
            ratio(
                "DFL+Compression",
                "DFL",
                "megabytes",
                "compression leaves less than half of DFL's communication",
            ),
            ratio(
                "DFL+Compression",
                "DFL",
                "update_megabytes",
                "the same, if only the updates of DFL are counted",
            ),
            ratio(
                "DeFL-VP",
                "w/o Comp.",
                "megabytes",
                "compression leaves less than half of DeFL-VP's communication",
            ),
            ratio(
                "DeFL-VP",
                "w/o Comp.",
                "update_megabytes",
                "the same, if only the updates of DeFL-VP are counted",
            ),
            *column_claims(TABLE5),
        ],
        draw=panels(TABLE5),
        protocol=(
            f"{PROTOCOL}; bytes on the wire are counted, as the paper's seconds are of a network it does not describe: "
            "models (and variates) go out in full, only updates are compressed, a sign takes one bit; DFL is D-PSGD "
            "sent as model and gradient, though the paper's 86.9 is what its table 1 has for DFL+VR"
        ),
        quickly=QUICKLY,
        repeats=3,
        quick_repeats=1,
    ),
)
