"""Miao et al. 2025, LPPA: deep leakage from gradients, Table 2 (errors) and Figure 4 (pictures)."""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from tacit.config.loading import make_config
from tacit.config.sections import Config
from tacit.report.style import plot_style
from tacit_papers.framework.artifact import Artifact
from tacit_papers.framework.cells import Cell, Published, Scale
from tacit_papers.framework.claims import ClaimVerdict, claim, grade_least, ordered
from tacit_papers.framework.drawing import beside_paper
from tacit_papers.framework.results import ArtifactResult, NotMeasured
from tacit_papers.framework.stored_values import unpacked
from tacit_papers.lppa.setting import IMAGES, PERCEPTRON, RULES, TABLES, config
from tacit_papers.measures.first_message import FirstMessageInversion

TABLE2: dict[str, tuple[float, float, float]] = {
    "MNIST": (0.372, 9.828, 12.039),
    "FMNIST": (1.651, 10.790, 15.095),
    "CIFAR10": (30.255, 61.311, 63.620),
    "Adult": (0.057, 2.606, 3.355),
    "Rcv1": (216.365, 215.443, 216.829),
    "Covtype": (7897.451, 7897.445, 7897.598),
}
# Smooth networks; for images the one that deep leakage was first shown on. Against ReLU and
# max-pooling L-BFGS fails with and without noise. Inputs of tables are scaled, so their errors are
# not comparable with the paper's.
ATTACKED: dict[str, dict[str, Any]] = {
    **{dataset: {"name": "sigmoid-cnn3", "uniform": 0.5} for dataset in IMAGES},
    **{dataset: {**PERCEPTRON, "activation": "sigmoid"} for dataset in TABLES},
}
FEATURES = 500  # of Rcv1: the search has as many unknowns


def attacked(dataset: str, rule: str) -> Config:
    """The experiment of section 6 with a batch of one sample, which is attacked."""
    plain = config(dataset, rule, Scale()).as_dict()
    plain["model"] = {**ATTACKED[dataset], "init": "independent"}
    plain["data"] |= {"limit_train": 1000, "limit_test": 100}
    if "features" in plain["data"]:
        plain["data"]["features"] = FEATURES
    plain["run"] |= {"batch_size": 1}
    return make_config(plain)


def _measure(dataset: str, rule: str, scale: Scale) -> FirstMessageInversion:
    return FirstMessageInversion(attacked(dataset, rule), scale.pick(300, 150))


def _table2(scale: Scale) -> list[Cell]:
    return [
        Cell((dataset, rule), _measure(dataset, rule, scale), Published(mse))
        for dataset, row in TABLE2.items()
        for rule, mse in zip(RULES, row, strict=True)
    ]


@claim
def _ratio(result: ArtifactResult, above: str, below: str, least: float) -> ClaimVerdict:
    """The ratio of two rules' errors, in the median over the datasets."""
    pairs = [((dataset, above), (dataset, below)) for dataset in result.labels(0)]
    ratios = [
        result.mean(one) / result.mean(other)
        for one, other in pairs
        if one in result and other in result and result.mean(other) > 0
    ]
    if not ratios:
        raise NotMeasured(above)
    middle = statistics.median(ratios)
    span = f"of {len(ratios)} datasets, from {min(ratios):.3g} to {max(ratios):.3g}"
    return ClaimVerdict(grade_least(middle, least, 1), f"× {middle:.3g}", span)


def _draw_pictures(result: ArtifactResult) -> Figure:
    """The truth and what each rule's first message reveals of it, per repeat."""
    cells = result.measured
    seeds = list(cells[0].values)[:4]
    with plot_style():
        figure = Figure(figsize=(1.5 * (len(cells) + 1), 1.6 * len(seeds)), layout="constrained")
        panels = figure.subplots(len(seeds), len(cells) + 1, squeeze=False)
        for row, seed in zip(panels, seeds, strict=True):
            shown = {"truth": cells[0].values[seed]["truth_and_guess"][0]}
            for cell in cells:
                values = cell.values[seed]
                shown[f"{cell.key[0]}: MSE {values['errors'][0]:.2g}"] = values["truth_and_guess"][
                    1
                ]
            for axes, (title, picture) in zip(row, shown.items(), strict=True):
                axes.imshow(unpacked(picture), cmap="gray_r", vmin=0, vmax=1)
                axes.set_axis_off()
                axes.set_title(title, fontsize=8)
    return figure


dlg = partial(
    Artifact,
    metric="median_mse",
    protocol=(
        "DLG (L-BFGS, 300 iterations, labels optimised too, no box) on γ⁰ at θ⁰ of every client, "
        "one sample each, once; images with the smooth network of the DLG paper (weights uniform "
        "in ±0.5), tables with the perceptron of Table 1 with sigmoids; Laplace(0.025); the "
        "median over the clients. The paper does not say which network, batch or scaling it attacks"
    ),
    quickly="150 iterations",
    form=".3g",
    unit="per number",
    quick_repeats=2,
)
ARTIFACTS = (
    dlg(
        name="lppa/table2",
        title="Table 2: mean square error of inputs found by DLG",
        axes=("dataset", "rule"),
        cells=_table2,
        claims=[
            *(
                ordered(
                    f"{dataset}: DSGT < DP < LPPA",
                    " / ".join(f"{mse:g}" for mse in row),
                    [(dataset, rule) for rule in RULES],
                )
                for dataset, row in TABLE2.items()
            ),
            _ratio("LPPA's error is about ten times DSGT's", "× 10", "LPPA", "DSGT", 10.0),
            _ratio("LPPA's error is about 1.5 times DP's", "× 1.5", "LPPA", "DP", 1.2),
        ],
        draw=beside_paper("MSE (ours: median over clients)", log=True),
        repeats=10,
    ),
    dlg(
        name="lppa/fig4",
        title="Figure 4: pictures found by DLG on MNIST",
        axes=("rule",),
        cells=lambda scale: [Cell((rule,), _measure("MNIST", rule, scale)) for rule in RULES],
        claims=[
            ordered(
                "DSGT reveals the digit, LPPA does not", "pictures", [(rule,) for rule in RULES]
            )
        ],
        draw=_draw_pictures,
        repeats=4,
    ),
)
