"""Finding: one liar of ten ruins plain mixing; robust mixing keeps the accuracy.

Ten clients on a random 4-regular graph; one of them sends −100 times its rows, adds noise to them,
or trains on wrong labels. Mixing is plain, by centred clipping or by the trimmed mean, both set to
one liar per neighbourhood. The last rows, without a liar, show why robust mixing is refused with
gradient tracking and exact diffusion: they need exact averages.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from tacit.config.loading import make_config
from tacit.config.sections import Config
from tacit.report.style import PALETTE, plot_style
from tacit_papers.framework.artifact import Artifact
from tacit_papers.framework.cells import Cell, Key, Scale
from tacit_papers.framework.claims import (
    Claim,
    ClaimVerdict,
    claim,
    full_scale_only,
    grade,
    grade_all,
)
from tacit_papers.framework.results import ArtifactResult
from tacit_papers.measures.lying import HONEST, LABELS, LyingTraining

PLAIN, CLIPPING, TRIMMING = "plain", "centred clipping", "trimmed mean"
MIXING: dict[str, dict[str, Any] | None] = {
    PLAIN: None,
    CLIPPING: {"rule": "centred-clipping", "liars": 1},
    TRIMMING: {"rule": "trimmed-mean", "liars": 1},
}
# The lie and its scale, by label.
LIES: dict[str, tuple[Any, float]] = {
    "no liar": (HONEST, 1.0),
    "sign flip × 100": ("sign-flip", 100.0),
    "noise of 10": ("noise", 10.0),
    "label flip": (LABELS, 1.0),
}
EXACT = ("dsgt", "lppa", "edsg")  # need exact averages
GRAPH: dict[str, Any] = {"kind": "random-regular", "clients": 10, "degree": 4}
NO_LIAR = "no liar"
CLOSE = 3.0  # points that robust mixing may lose to a liar
BROKEN = 20.0  # points that plain mixing loses at least
EARLY = "the quick version ends before that shows"
OURS = "our claim"


def _config(algorithm: str, mixing: str, scale: Scale) -> Config:
    robust = MIXING[mixing]
    values: dict[str, Any] = {
        "data": {"name": "mnist-mini"},
        "model": {"name": "mlp", "hidden": [32]},
        # Exact diffusion needs a positive definite W.
        "graph": GRAPH | {"lazy": algorithm == "edsg"},
        "algorithm": {"name": algorithm, "lr": 0.1},
        "run": {"rounds": scale.pick(30, 6), "iterations_per_round": 10},
    }
    if robust is not None:
        values["robust"] = robust | ({"allow_inexact": True} if algorithm in EXACT else {})
    return make_config(values)


def _cells(scale: Scale) -> list[Cell]:
    cells = [
        Cell(("dsg", lie, mixing), LyingTraining(_config("dsg", mixing, scale), *how))
        for lie, how in LIES.items()
        for mixing in MIXING
    ]
    return cells + [
        Cell((algorithm, NO_LIAR, mixing), LyingTraining(_config(algorithm, mixing, scale)))
        for algorithm in EXACT
        for mixing in MIXING
    ]


@claim
def _keeps(result: ArtifactResult, key: Key) -> ClaimVerdict:
    reference = ("dsg", NO_LIAR, PLAIN)
    lost = result.mean(reference) - result.mean(key)
    text = f"{result.formatted(key)} against {result.formatted(reference)}"
    return ClaimVerdict(grade(max(0.0, lost), CLOSE), f"{-lost:+.2f} points", text)


@claim
def _breaks(result: ArtifactResult, key: Key, reference: Key) -> ClaimVerdict:
    lost = result.mean(reference) - result.mean(key)
    return ClaimVerdict(grade_all([lost >= BROKEN]), f"{-lost:+.2f} points")


def _claims() -> list[Claim]:
    reference = ("dsg", NO_LIAR, PLAIN)
    kept = [
        _keeps(f"{mixing}, {lie}: at most {CLOSE:g} points lost", OURS, ("dsg", lie, mixing))
        for mixing in (CLIPPING, TRIMMING)
        for lie in LIES
    ]
    broken = [
        _breaks(f"plain mixing breaks: {lie}", OURS, ("dsg", lie, PLAIN), reference)
        for lie in ("sign flip × 100", "noise of 10")
    ]
    inexact = [
        _breaks(
            f"{algorithm} breaks under the trimmed mean, without a liar",
            OURS,
            (algorithm, NO_LIAR, TRIMMING),
            (algorithm, NO_LIAR, PLAIN),
        )
        for algorithm in EXACT
    ]
    return [*kept, *(full_scale_only(each, EARLY) for each in (*broken, *inexact))]


def _draw(result: ArtifactResult) -> Figure:
    """Bars of the accuracy, a group per lie and algorithm."""
    groups = list(dict.fromkeys(cell.key[:2] for cell in result.measured))
    width = 0.8 / len(MIXING)
    with plot_style():
        figure = Figure(figsize=(9.0, 3.4), layout="constrained")
        axes = figure.subplots()
        for number, mixing in enumerate(MIXING):
            places = np.arange(len(groups)) + (number - 1) * width
            heights = [result.mean((*group, mixing)) for group in groups]
            axes.bar(places, heights, width, label=mixing, color=PALETTE[number])
        names = ["\n".join(group) for group in groups]
        axes.set_xticks(range(len(groups)), names, fontsize=8)
        axes.set_ylabel("accuracy of honest clients (%)")
        axes.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    return figure


ARTIFACTS = (
    Artifact(
        name="findings/liars",
        title="One liar of ten: plain mixing, centred clipping and trimmed mean",
        axes=("algorithm", "liar", "mixing"),
        cells=_cells,
        metric="accuracy",
        claims=_claims(),
        draw=_draw,
        protocol=(
            "the bundled digits (mnist-mini), 10 clients with equal random shares on a random "
            "4-regular graph with Metropolis weights (lazy for edsg), a perceptron with 32 hidden "
            "units, step size 0.1, batches of 32, 300 iterations. Client 3 lies in every "
            "iteration, to all neighbours alike; it trains honestly itself, except with flipped "
            "labels (class c as 9 − c). Rules are set to one liar per neighbourhood. Accuracy is "
            "the mean over the nine honest clients' own models"
        ),
        quickly="60 iterations instead of 300",
    ),
)
