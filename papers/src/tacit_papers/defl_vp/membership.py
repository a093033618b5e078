"""Xiu et al. 2026, DeFL-VP: the AUCs of Tables 2 and 4 with models that overfit, and more attacks.

The paper names no attack and no adversary. With all of Fashion-MNIST models hardly overfit, and the
loss tells little about members. Here clients have few samples.
"""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from tacit.config.loading import make_config
from tacit.config.sections import Config
from tacit.report.style import INK, PALETTE, plot_style
from tacit_papers.defl_vp import contradictions
from tacit_papers.defl_vp.setting import EPSILON, VARIANTS, config as published
from tacit_papers.framework.artifact import Artifact
from tacit_papers.framework.cells import Cell, Key, Published, Scale
from tacit_papers.framework.claims import (
    Claim,
    ClaimVerdict,
    claim,
    full_scale_only,
    grade,
    grade_least,
)
from tacit_papers.framework.results import ArtifactResult, NotMeasured
from tacit_papers.measures.membership_suite import LOSS, MembershipSuite, Signs

# Tables 2 and 4; DeFL-VP has 0.497 in one and 0.52 in the other.
PAPER = {
    "D-PSGD": 0.677,
    "D-PSGD+RR": 0.560,
    "w/o DP": 0.80,
    "w/o VR": 0.56,
    "w/o Comp.": 0.54,
    "DeFL-VP": 0.497,
}
SIGNS = {"D-PSGD+RR": Signs(EPSILON, 1.0), "w/o VR": Signs(EPSILON, 0.4)}
SIZES = (300, 1000, 4000)
QUICK = (1000,)
BATCHES = 3  # per local epoch
TOLERANCE = 0.03


def _label(size: int) -> str:
    return f"{size // 10} samples per client"


def config(variant: str, size: int, scale: Scale) -> Config:
    """The setting of the tables with fewer samples, and three mini-batches in a local epoch."""
    plain = published(scale, VARIANTS[variant]).as_dict()
    size = scale.pick(size, size // 2)
    plain["data"] |= {"limit_train": size}
    plain["run"] |= {
        "batch_size": size // 10 // BATCHES,
        "iterations_per_round": BATCHES,
        "rounds": scale.pick(200, 4),
        "evaluate_every": scale.pick(10, 2),
    }
    return make_config(plain)


def _cells(scale: Scale) -> list[Cell]:
    return [
        Cell(
            (_label(size), variant),
            MembershipSuite(
                config(variant, size, scale), SIGNS.get(variant), shadows=not scale.quick
            ),
            Published(paper),
        )
        for size in scale.pick(SIZES, QUICK)
        for variant, paper in PAPER.items()
    ]


def _areas(result: ArtifactResult, key: Key) -> dict[str, float]:
    """The mean AUC of each attack on a cell."""
    if key not in result:
        raise NotMeasured(key)
    repeats = [values["aucs"] for values in result[key].values.values()]
    every = [name for name in repeats[0] if all(name in one for one in repeats)]
    return {name: sum(one[name] for one in repeats) / len(repeats) for name in every}


def _strongest(result: ArtifactResult, variant: str) -> tuple[float, str, Key]:
    """The largest AUC on a variant, its attack and its cell."""
    found = [
        (area, name, key)
        for key in (cell.key for cell in result.measured)
        if key[1] == variant
        for name, area in _areas(result, key).items()
    ]
    if not found:
        raise NotMeasured
    return max(found)


@claim
def _reachable(result: ArtifactResult, variant: str) -> ClaimVerdict:
    """Some attack on some amount of data has at least the paper's AUC."""
    area, name, key = _strongest(result, variant)
    short = PAPER[variant] - area
    loss = max(_areas(result, cell.key)[LOSS] for cell in result.measured if cell.key[1] == variant)
    reason = f"by {name}, {key[0]}; by the loss at most {loss:.3f}"
    return ClaimVerdict(grade(short, TOLERANCE), f"{area:.3f}", reason)


@claim
def _hidden(result: ArtifactResult, variant: str) -> ClaimVerdict:
    """No attack has much more than the paper's AUC."""
    area, name, key = _strongest(result, variant)
    reason = f"by {name}, {key[0]}"
    return ClaimVerdict(grade(area - PAPER[variant], TOLERANCE), f"{area:.3f}", reason)


def _at_accuracy(curve: dict[str, list[float]], accuracy: float) -> float:
    """The AUC of the loss at the first record with this accuracy."""
    pairs = zip(curve["accuracy"], curve["auc"], strict=True)
    return next(area for found, area in pairs if found >= accuracy)


@claim
def _lower_at_equal_accuracy(result: ArtifactResult, plain: str, protected: str) -> ClaimVerdict:
    """Where both first have the accuracy that both reach, the loss tells less with protection."""
    gaps = []
    for size in SIZES:
        keys = (_label(size), plain), (_label(size), protected)
        if not all(key in result for key in keys):
            continue
        curves = [result.curve(key) for key in keys]
        common = min(max(curve["accuracy"]) for curve in curves)
        one, other = (_at_accuracy(curve, common) for curve in curves)
        gaps.append((one - other, f"{one:.3f} and {other:.3f} at {common:.1f} %"))
    if not gaps:
        raise NotMeasured
    least = min(gap for gap, _ in gaps)
    word = grade_least(least, TOLERANCE, 0.0)
    return ClaimVerdict(word, "; ".join(text for _, text in gaps), f"{TOLERANCE:g} is less")


def _draw(result: ArtifactResult) -> Figure:
    """A panel per amount of data: the loss, the strongest attack and the paper, by variant."""
    with plot_style():
        labels = result.labels(0)
        figure = Figure(figsize=(3.6 * len(labels) + 1.2, 3.8), layout="constrained")
        for axes, label in zip(
            figure.subplots(1, len(labels), sharey=True, squeeze=False)[0], labels, strict=True
        ):
            variants = result.labels(1, label)
            areas = [_areas(result, (label, variant)) for variant in variants]
            spots = range(len(variants))
            axes.plot(spots, [one[LOSS] for one in areas], "o", color=PALETTE[0], label="loss")
            axes.plot(
                spots,
                [max(one.values()) for one in areas],
                "^",
                color=PALETTE[1],
                label="strongest attack",
            )
            axes.plot(spots, [PAPER[one] for one in variants], "*", color=INK, label="the paper")
            axes.axhline(0.5, linestyle=":", color=INK, linewidth=1)
            axes.set_xticks(spots, variants, rotation=40, ha="right", fontsize=9)
            axes.set_xlim(-0.5, len(variants) - 0.5)
            axes.set_title(label, fontsize=10)
        figure.axes[0].set_ylabel("attack AUC")
        handles, names = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=3)
    return figure


CLAIMS: list[Claim] = [
    *(
        _reachable(f"{variant}: some attack finds as many members", f"{PAPER[variant]:g}", variant)
        for variant in ("D-PSGD", "w/o DP", "D-PSGD+RR", "w/o VR")
    ),
    _hidden("DeFL-VP hides members from all attacks", "0.497", "DeFL-VP"),
    _lower_at_equal_accuracy(
        "at equal accuracy the loss tells less with DP than without",
        "not said",
        "w/o DP",
        "DeFL-VP",
    ),
    _lower_at_equal_accuracy(
        "at equal accuracy the loss tells less of DeFL-VP than of D-PSGD",
        "not said",
        "D-PSGD",
        "DeFL-VP",
    ),
]
PROTOCOL: dict[str, Any] = {
    "protocol": (
        "the setting of defl-vp/table2 and 4 with 300, 1,000 or 4,000 training samples, drawn "
        "with the seed, and three exchanges in each of 200 rounds; members of a client's data "
        "against as many test samples of the same classes. Attacks: the loss and the gradient "
        "norm of clients' final models; likelihood ratio and RMIA with 16 shadow federations, on "
        "one client per seed; the cosine of a sample's gradient with what neighbours see of the "
        "client's gradients in 40 iterations, on four clients: randomized signs where no variates "
        "are sent, otherwise the gradient itself, which DeFL-VP's variates reveal exactly. The "
        "table has the loss; claims name the strongest attack by its mean over seeds"
    ),
    "quickly": "500 training and 500 test samples, 4 rounds, no shadow federations",
}
ARTIFACTS = (
    Artifact(
        name="defl-vp/membership",
        title="Tables 2 and 4: membership inference of models that overfit, by more attacks",
        axes=("data", "method"),
        cells=_cells,
        metric="auc",
        claims=[full_scale_only(one) for one in CLAIMS],
        contradictions=contradictions.MEMBERSHIP,
        draw=_draw,
        form=".3f",
        unit="AUC of the loss",
        **PROTOCOL,
    ),
)
