"""The attacks of the LPPA paper: Table 2 (errors of deep leakage from gradients) and Figure 4 (its pictures)."""

from __future__ import annotations

import statistics
from typing import Any

from matplotlib.figure import Figure

from tacit.config.sections import Config, make_config
from tacit.report.style import plot_style
from tacit_papers.framework.artifact import Artifact, Cell, Key, Published, Scale
from tacit_papers.framework.claims import Claim, ClaimVerdict, Word, ordered
from tacit_papers.framework.drawing import beside_paper
from tacit_papers.framework.outcome import ArtifactResult, Missing
from tacit_papers.lppa.tables import DATA, IMAGES, RULES, TABLES, config
from tacit_papers.measures.first_message import FirstMessageInverted

TABLE2: dict[str, tuple[float, float, float]] = {
    "MNIST": (0.372, 9.828, 12.039),
    "FMNIST": (1.651, 10.790, 15.095),
    "CIFAR10": (30.255, 61.311, 63.620),
    "Adult": (0.057, 2.606, 3.355),
    "Rcv1": (216.365, 215.443, 216.829),
    "Covtype": (7897.451, 7897.445, 7897.598),
}
# Smooth networks, for images the one that deep leakage was first shown on: against ReLU and max-pooling L-BFGS fails
# whether there is noise or not. Inputs of the tables are scaled, so that their errors are not comparable in size.
ATTACKED: dict[str, dict[str, Any]] = {
    **{dataset: {"name": "sigmoid-cnn3", "uniform": 0.5} for dataset in IMAGES},
    **{dataset: {**DATA[dataset]["model"], "activation": "sigmoid"} for dataset in TABLES},
}
FEATURES = 500  # of Rcv1, enough to see it: the search has as many unknowns


def attacked(dataset: str, rule: str) -> Config:
    """The experiment of section 6 with a batch of one sample, which the attack is on."""
    plain = config(dataset, rule, Scale()).as_dict()
    plain["model"] = {**ATTACKED[dataset], "init": "independent"}
    plain["data"] |= {"limit_train": 1000, "limit_test": 100}
    if "features" in plain["data"]:
        plain["data"]["features"] = FEATURES
    plain["run"] |= {"batch_size": 1}
    return make_config(plain)


def _table2(scale: Scale) -> list[Cell]:
    return [
        Cell(
            (dataset, rule),
            FirstMessageInverted(attacked(dataset, rule), scale.pick(300, 150)),
            Published(mse),
        )
        for dataset, row in TABLE2.items()
        for rule, mse in zip(RULES, row, strict=True)
    ]


def _fig4(scale: Scale) -> list[Cell]:
    return [
        Cell((rule,), FirstMessageInverted(attacked("MNIST", rule), scale.pick(300, 150)))
        for rule in RULES
    ]


def _ratio(of: str, to: str, text: str, paper: str, least: float) -> Claim:
    """A claim about the ratio of two rules' errors in the median over the datasets."""

    def check(outcome: ArtifactResult) -> ClaimVerdict:
        datasets = dict.fromkeys(cell.key[0] for cell in outcome.measured)
        pairs: list[tuple[Key, Key]] = [((one, of), (one, to)) for one in datasets]
        found = [
            outcome.mean(above) / outcome.mean(below)
            for above, below in pairs
            if above in outcome and below in outcome and outcome.mean(below) > 0
        ]
        if not found:
            raise Missing(of)
        middle = statistics.median(found)
        word: Word = (
            "reproduced" if middle >= least else "partly" if middle > 1 else "not reproduced"
        )
        return ClaimVerdict(
            word,
            f"× {middle:.3g}",
            f"of {len(found)} datasets, from {min(found):.3g} to {max(found):.3g}",
        )

    return Claim(text, paper, check)


def _pictures(outcome: ArtifactResult) -> Figure:
    """What was there, and what each rule's first message gives away of it, per repeat."""
    cells = outcome.measured
    seeds = list(cells[0].values)[:4]
    with plot_style():
        figure = Figure(figsize=(1.5 * (len(cells) + 1), 1.6 * len(seeds)), layout="constrained")
        panels = figure.subplots(len(seeds), len(cells) + 1, squeeze=False)
        for row, seed in zip(panels, seeds, strict=True):
            truth = cells[0].values[seed]["pictures"][0]
            shown = [("truth", truth, None)] + [
                (cell.key[0], cell.values[seed]["pictures"][1], cell.values[seed]["errors"][0])
                for cell in cells
            ]
            for axes, (name, picture, error) in zip(row, shown, strict=True):
                axes.imshow(picture, cmap="gray_r", vmin=0, vmax=1)
                axes.set_axis_off()
                axes.set_title(name if error is None else f"{name}: MSE {error:.2g}", fontsize=8)
    return figure


SETTING = (
    "DLG (L-BFGS, 300 iterations, labels searched too, no box) on γ⁰ at θ⁰ of every client, one sample each, once; "
    "images with the smooth network of the DLG paper (weights uniform in ±0.5), tables with the perceptron of Table 1 "
    "with sigmoids; "
    "Laplace(0.025); the median over the clients. The paper does not say which network, batch or scaling it attacks"
)
ARTIFACTS = (
    Artifact(
        name="lppa/table2",
        title="Table 2: mean square error of inputs found by DLG",
        axes=("dataset", "rule"),
        cells=_table2,
        metric="median_mse",
        claims=[
            *(
                ordered(
                    [(dataset, rule) for rule in RULES],
                    f"{dataset}: DSGT < DP < LPPA",
                    " / ".join(f"{mse:g}" for mse in row),
                )
                for dataset, row in TABLE2.items()
            ),
            _ratio("LPPA", "DSGT", "LPPA's error is about tenfold DSGT's", "× 10", 10.0),
            _ratio("LPPA", "DP", "LPPA's error is about 1.5 times DP's", "× 1.5", 1.2),
        ],
        draw=beside_paper("MSE (ours: median over clients)", log=True),
        protocol=SETTING,
        quickly="150 iterations",
        form=".3g",
        unit="per number",
        repeats=10,
    ),
    Artifact(
        name="lppa/fig4",
        title="Figure 4: pictures found by DLG on MNIST",
        axes=("rule",),
        cells=_fig4,
        metric="median_mse",
        claims=[
            ordered(
                [(rule,) for rule in RULES], "DSGT gives the digit away, LPPA does not", "pictures"
            )
        ],
        draw=_pictures,
        protocol=SETTING,
        quickly="150 iterations",
        form=".3g",
        unit="per number",
        repeats=4,
    ),
)
